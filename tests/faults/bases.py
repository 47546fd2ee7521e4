"""Sound variants of the reference caches, for faults that the reference caches have no place for.

They break no MUST, which a test asserts.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import ChunkedKVCache, KVCache
from reference_impl.arguments import check_chunk
from reference_impl.buffers import joined

Rows = tuple[mx.array, mx.array]


class RowOffsets(KVCache):
    """A batch of two sequences: offset is an array of shape (2,)."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = mx.zeros((2,), mx.int32)

    @property
    def offset(self) -> Any:
        return self._rows

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)
        self._rows = mx.full((2,), offset, mx.int32)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        self._rows = self._rows + keys.shape[2]
        return result

    @property
    def state(self) -> Any:
        return *super().state, self._rows


class StepKVCache(KVCache):
    """Writes to its buffers in place and grows by a fixed step, as mlx-lm's KVCache does."""

    step = 256

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        held = self._buffers
        check_chunk(type(self).__name__, keys, values, held)
        start, end = self._offset, self._offset + keys.shape[2]
        if end == 0:
            return keys[...], values[...]
        if held is None or end > held[0].shape[2]:
            capacity = self._capacity(end)
            old: Any = ([], []) if held is None else ([rows[:, :, :start]] for rows in held)
            self._buffers = tuple(
                joined([*pieces, new], capacity)
                for pieces, new in zip(old, (keys, values), strict=True)
            )
        else:
            for buffer, new in zip(held, (keys, values), strict=True):
                buffer[:, :, start:end] = new
        self._offset = end
        return self.keys_and_values()

    def _capacity(self, end: int) -> int:
        """Rows of a buffer that has to hold ``end``: whole steps."""
        return -(-end // self.step) * self.step


class ExposedKVCache(KVCache):
    """Has its buffers as settable attributes ``keys`` and ``values``."""

    @property
    def keys(self) -> mx.array | None:
        return None if self._buffers is None else self._buffers[0]

    @keys.setter
    def keys(self, keys: mx.array) -> None:
        self._buffers = keys, self.values

    @property
    def values(self) -> mx.array | None:
        return None if self._buffers is None else self._buffers[1]

    @values.setter
    def values(self, values: mx.array) -> None:
        self._buffers = self.keys, values


class GoesBackToItsFront(ChunkedKVCache):
    """Is trimmable always, and goes back as far as its rows serve a chunk whole (TRIM-2)."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        first = -(-self._start_position // self._chunk_size) * self._chunk_size
        removed = min(n, max(self._offset - first, 0))
        self._offset -= removed
        if self._offset == 0:
            self._buffers = None
        return removed


class EvictingKVCache:
    """Evicts after it returned: head h keeps its first h tokens and the newest others."""

    budget = 6

    def __init__(self) -> None:
        self._offset = 0
        self._kept: Rows | None = None

    @property
    def offset(self) -> int:
        return self._offset

    def make_mask(self, N: int, /, *, return_array: bool = False, window_size: Any = None) -> Any:
        if N < 1:
            raise ValueError(f"{type(self).__name__}: N must be at least 1, got {N}")
        held = self.size()
        if N == 1:
            return None
        seen = mx.arange(held + N) <= mx.arange(held, held + N)[:, None]
        return seen if return_array else "causal"

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        check_chunk(type(self).__name__, keys, values, self._kept)
        if self._kept is not None:
            old_keys, old_values = self._kept
            keys = mx.concatenate([old_keys, keys], axis=2)
            values = mx.concatenate([old_values, values], axis=2)
        self._offset += keys.shape[2] - self.size()
        self._kept = (self.kept(keys), self.kept(values)) if keys.shape[2] else None
        return keys, values

    def kept(self, rows: mx.array) -> mx.array:
        """What is left of (B, H, L, D) rows."""
        drop = max(rows.shape[2] - self.budget, 0)
        heads = [
            mx.concatenate([rows[:, h : h + 1, :h], rows[:, h : h + 1, h + drop :]], axis=2)
            for h in range(rows.shape[1])
        ]
        return mx.concatenate(heads, axis=1)

    def size(self) -> int:
        return 0 if self._kept is None else self._kept[0].shape[2]

    @property
    def state(self) -> Any:
        return *(self._kept or (None, None)), self._offset


SOUND = (RowOffsets, StepKVCache, ExposedKVCache, EvictingKVCache)
