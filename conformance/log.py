"""The oracle: a token log in numpy, and the attention that follows from it.

A log is what a cache is a view of. Row b holds tokens in columns 0..T-1; the first
``left_padding[b]`` columns of a row are padding. A token has a number (it stands in its key and
value, see tags.py) and, in each row, a position: its column less the row's padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.tags import FloatArray
from kvproto.visibility import Visibility


class TokenLog:
    """The tokens appended so far, less those trimmed since.

    Args:
        left_padding: columns of padding at the start of each row; its length is the batch size.
    """

    def __init__(self, left_padding: Sequence[int]) -> None:
        self.left_padding = tuple(left_padding)
        self.ids: list[int] = []
        self._next = 0

    @property
    def length(self) -> int:
        """Columns logged; the offset of an unpadded row."""
        return len(self.ids)

    @property
    def offsets(self) -> list[int]:
        """The offset of each row."""
        return [self.length - padding for padding in self.left_padding]

    def append(self, count: int) -> list[int]:
        """Log new tokens and return their numbers. A number is never used twice."""
        new = list(range(self._next, self._next + count))
        self.ids.extend(new)
        self._next += count
        return new

    def trim(self, count: int) -> None:
        """Remove the newest columns."""
        if count:
            del self.ids[-count:]

    def is_padding(self, row: int, column: int) -> bool:
        return column < self.left_padding[row]

    def visible(self, row: int, column: int, visibility: Visibility) -> list[int]:
        """The columns that the query in this column may attend, in order."""
        padding = self.left_padding[row]
        return [
            key
            for key in range(padding, column + 1)
            if visibility.sees(column - padding, key - padding)
        ]

    def attention(
        self,
        queries: FloatArray,
        keys: FloatArray,
        values: FloatArray,
        columns: Sequence[int],
        visibility: Visibility,
        scale: float,
    ) -> FloatArray:
        """Dense softmax attention in float64, one query at a time.

        Args:
            queries: ``(B, n_heads, N, Dk)``; n_heads is a multiple of the key heads.
            keys, values: the rows of the logged tokens, ``(B, n_kv_heads, T, Dk)`` and
                ``(B, n_kv_heads, T, Dv)``.
            columns: the N columns that the queries were made from.

        Returns:
            ``(B, n_heads, N, Dv)``; NaN for queries that are padding themselves.
        """
        batch, n_heads = queries.shape[:2]
        groups = n_heads // keys.shape[1]
        out = np.full((batch, n_heads, len(columns), values.shape[-1]), np.nan)
        for row in range(batch):
            for index, column in enumerate(columns):
                if self.is_padding(row, column):
                    continue
                seen = self.visible(row, column, visibility)
                for head in range(n_heads):
                    k, v = keys[row, head // groups, seen], values[row, head // groups, seen]
                    scores = k @ queries[row, head, index] * scale
                    weights = np.exp(scores - scores.max())
                    out[row, head, index] = weights @ v / weights.sum()
        return out
