"""A batch of full-visibility KV caches whose rows have different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import (
    check_chunk,
    check_fits,
    check_int,
    checked_ints,
    checked_row,
    checked_rows,
    checked_selection,
)
from reference_impl.buffers import appended, grown_capacity, joined
from reference_impl.full import KVCache
from reference_impl.masks import AttentionMask, padded_attention_mask
from reference_impl.padding import RowPadding, checked_right_padding

BatchState: TypeAlias = "tuple[mx.array | None, mx.array | None, int, mx.array, mx.array | None]"
"""Keys (B, H, columns, Dk), values (B, H, columns, Dv), columns, left padding (B,), announced
padding at the right (B, 3) or None; None for keys and values if there are no columns."""


class BatchKVCache:
    """Keeps every token of B rows, each seeing its own past alone, as a :class:`KVCache` would.

    The rows share columns, and end together at the newest one; a shorter row begins later, after
    ``left_padding`` columns that are no tokens. ``offset`` is negative as long as a row is inside
    its padding, and 0 at its first token (POS-1). The mask hides the padding (BATCH-1).

    Prompts of different lengths may also be fed padded at the right: announced by :meth:`prepare`,
    ended by :meth:`finalize`, which moves that padding to the left of its row. In between all
    operations know it (BATCH-5): a row that is extracted has its tokens alone. Only ``offset``
    counts these columns until then, since a mask or a RoPE angle is asked for every column.

    Everything that tells one row from another is kept in Python ints, so that no step waits for an
    array. Shapes, growth, refusals and aliasing are those of :class:`reference_impl.KVCache`.

    Args:
        left_padding: columns of padding at the start of each row; its length is B. None is legal.

    Raises:
        TypeError: ``left_padding`` is neither a list of ints nor an integer array.
        ValueError: a number is negative.
    """

    def __init__(self, left_padding: Sequence[int] | mx.array) -> None:
        owner = type(self).__name__
        self._padding = RowPadding(checked_ints(owner, "left_padding", left_padding, minimum=0))
        self._columns = 0
        # Keys and values; columns from _columns on are spare and hold anything. None while empty.
        self._buffers: tuple[mx.array, mx.array] | None = None

    @property
    def left_padding(self) -> mx.array:
        """Columns of padding at the start of each row (B,); a new array at every read."""
        return mx.array(self._padding.left, mx.int32)

    @property
    def offset(self) -> mx.array:
        """Position of each row's next token (B,); a new array at every read (POS-1 to POS-6)."""
        return mx.array([self._columns - left for left in self._padding.left], mx.int32)

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N columns, asked before it; changes nothing (MASK-7).

        Args:
            N: number of new columns.
            return_array: give an array instead of ``"causal"`` (MASK-5).
            window_size: tokens that a query sees, itself included; None for all (MASK-6).

        Returns:
            A boolean array (B, 1, N, L) if a row has padding, else as for one row: None,
            ``"causal"`` or (N, L); see :func:`reference_impl.masks.padded_attention_mask`.

        Raises:
            TypeError: N or window_size is not an int.
            ValueError: N or window_size is below 1 (MASK-11).
        """
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is not None:
            check_int(owner, "window_size", window_size, minimum=1)
        return padded_attention_mask(
            N, self._columns, self._padding.left, window=window_size, return_array=return_array
        )

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S columns and return all columns held, padding included, the new ones last.

        An append of no columns changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Returns:
            Keys (B, H, columns + S, Dk) and values (B, H, columns + S, Dv), dtypes as they came.

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit.
        """
        owner = type(self).__name__
        held = self._buffers
        check_chunk(owner, keys, values, held)
        if keys.shape[0] != self._padding.rows:
            raise ValueError(
                f"{owner}: keys must have B={self._padding.rows} rows, got shape {keys.shape}"
            )
        start = self._columns
        new = keys.shape[2]
        if start + new == 0:
            return keys[...], values[...]
        if held is None:
            capacity = grown_capacity(new)
            self._buffers = joined([keys], capacity), joined([values], capacity)
        else:
            self._buffers = appended(held[0], start, keys), appended(held[1], start, values)
        self._columns += new
        self._padding.advance(new)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last update returned, less what was trimmed since (READ-1, READ-2).

        Returns:
            Keys (B, H, columns, Dk) and values (B, H, columns, Dv).

        Raises:
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return keys[:, :, : self._columns], values[:, :, : self._columns]

    @property
    def state(self) -> BatchState:
        """Columns and padding, pending padding too, as a snapshot (STATE-1 to STATE-6, REST-7).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        keys, values = (None, None) if self._buffers is None else self.keys_and_values()
        return keys, values, self._columns, *self._padding.to_arrays()

    @state.setter
    def state(self, state: BatchState) -> None:
        owner = type(self).__name__
        keys, values, columns, left_padding, announced = state
        check_int(owner, "state columns", columns, minimum=0)
        padding = RowPadding.from_arrays(owner, left_padding, announced)
        held = checked_rows(owner, keys, values)
        shape = (padding.rows, 0) if held is None else (held[0].shape[0], held[0].shape[2])
        if shape != (padding.rows, columns) or (held is not None and columns == 0):
            raise ValueError(
                f"{owner}: state must hold {padding.rows} rows of as many columns as it says, and "
                f"None for no columns, got {shape} for {columns}"
            )
        self._padding = padding
        self._columns = columns
        self._buffers = held

    @classmethod
    def from_state(cls, state: BatchState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove columns: always True."""
        return True

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, columns)`` columns and return their number (TRIM-6).

        A row that has no more tokens than that is back inside its padding.

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
        """
        removed = min(check_int(type(self).__name__, "n", n, minimum=0), self._columns)
        self._columns -= removed
        self._padding.retract(removed)
        if self._columns == 0:
            self._buffers = None
        return removed

    def size(self) -> int:
        """Columns held: tokens of the longest row, and padding that all rows have (MEAS-1)."""
        return self._columns

    def empty(self) -> bool:
        """Whether no column is held (MEAS-2)."""
        return self._columns == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, padding and spare columns included (MEAS-3)."""
        return 0 if self._buffers is None else sum(buffer.nbytes for buffer in self._buffers)

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Self:
        """A batch of the rows of ``caches``, in their order; these are left as they are (BATCH-8).

        An empty cache counts as one row without tokens, which begins after the others' columns.

        Raises:
            TypeError: one of them is no :class:`KVCache`, or they differ in their dtypes.
            ValueError: there is none, or they differ in head count or head dims.
        """
        owner = cls.__name__
        if not caches:
            raise ValueError(f"{owner}: caches must hold at least one, got none")
        keys: list[tuple[mx.array | None, int]] = []
        values: list[tuple[mx.array | None, int]] = []
        for cache in caches:
            if not isinstance(cache, KVCache):
                raise TypeError(f"{owner}: caches must be KVCache, got {type(cache).__name__}")
            member_keys, member_values, _ = cache.state
            rows = 1 if member_keys is None else member_keys.shape[0]
            keys.append((member_keys, rows))
            values.append((member_values, rows))
        columns = max(cache.offset for cache in caches)
        merged = cls(
            [
                columns - cache.offset
                for cache, (_, rows) in zip(caches, keys, strict=True)
                for _ in range(rows)
            ]
        )
        merged._columns = columns
        if columns:
            merged._buffers = (
                _right_aligned(owner, "keys", keys, columns),
                _right_aligned(owner, "values", values, columns),
            )
        return merged

    def extend(self, other: Self, /) -> None:
        """Add the rows of ``other`` after those of this batch; it is left as it is (BATCH-4).

        The rows end together: those of the batch with fewer columns get padding at the left.

        Raises:
            TypeError: ``other`` is of another class, or holds other dtypes.
            ValueError: it holds another head count or other head dims.
        """
        owner = type(self).__name__
        if not isinstance(other, BatchKVCache):
            raise TypeError(f"{owner}: other must be a {owner}, got {type(other).__name__}")
        columns = max(self._columns, other._columns)
        if columns:
            mine = self._buffers and self.keys_and_values()
            others = other._buffers and other.keys_and_values()
            rows = self._padding.rows, other._padding.rows
            keys = [(mine and mine[0], rows[0]), (others and others[0], rows[1])]
            values = [(mine and mine[1], rows[0]), (others and others[1], rows[1])]
            self._buffers = (
                _right_aligned(owner, "keys", keys, columns),
                _right_aligned(owner, "values", values, columns),
            )
        self._padding = self._padding.joined(
            columns - self._columns, other._padding, columns - other._columns
        )
        self._columns = columns

    def filter(self, keep: Sequence[int] | mx.array, /) -> None:
        """Keep these rows, in this order (BATCH-4); none is legal (BATCH-10).

        Columns that are padding in all of them are dropped.

        Args:
            keep: row numbers; an array is evaluated.

        Raises:
            TypeError: ``keep`` holds no integers.
            ValueError: there is no such row.
        """
        kept = checked_selection(type(self).__name__, keep, self._padding.rows)
        dropped = min([self._padding.left[row] for row in kept] + [self._columns])
        if self._buffers is not None:
            rows = mx.array(kept, mx.int32)
            keys, values = self.keys_and_values()
            self._buffers = (
                None
                if dropped == self._columns
                else (
                    mx.take(keys[:, :, dropped:], rows, axis=0),
                    mx.take(values[:, :, dropped:], rows, axis=0),
                )
            )
        self._columns -= dropped
        self._padding = self._padding.selected(kept, dropped=dropped)

    def extract(self, index: int, /) -> KVCache:
        """The tokens of one row as a cache with memory of its own (BATCH-2, BATCH-8, MEAS-4).

        Raises:
            TypeError: ``index`` is not an int.
            ValueError: there is no such row.
        """
        row = checked_row(type(self).__name__, index, self._padding.rows)
        start = self._padding.left[row]
        end = self._columns - self._padding.right(self._columns)[row]
        if self._buffers is None or end <= start:
            return KVCache()
        # Not a slice, which would keep the memory of the whole batch alive.
        tokens = mx.arange(start, end)
        keys, values = (mx.take(buffer[row : row + 1], tokens, axis=2) for buffer in self._buffers)
        return KVCache.from_state((keys, values, end - start))

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | mx.array | None = None,
        lengths: Sequence[int] | mx.array | None = None,
        right_padding: Sequence[int] | mx.array | None = None,
    ) -> None:
        """Announce padding in the columns to come (BATCH-6).

        Where padding at the right is pending already, and columns have come since, it is finalized
        first.

        Args:
            left_padding: further columns of padding at the start of each row; only while the batch
                is empty.
            lengths: columns of each row to come before its padding at the right, padding at the
                left included.
            right_padding: columns of padding that are the newest ones of each row when
                :meth:`finalize` is called. Without ``lengths`` they may be there already: so the
                tails of rows can be cut off.

        Raises:
            TypeError: an argument holds no integers.
            ValueError: a number is negative, there is not one for each row, ``lengths`` and
                ``right_padding`` do not fit each other, or ``left_padding`` is given to a batch
                that is not empty.
        """
        owner = type(self).__name__
        left = self._padding.checked_left(owner, left_padding, self._columns)
        before, after = checked_right_padding(owner, lengths, right_padding, self._padding.rows)
        if before is not None or after is not None:
            self._move_to_left(self._padding.right(self._columns, unfed=False))
            self._padding.announce(before, after)
        if left_padding is not None:
            self._padding.left = left

    def finalize(self) -> None:
        """Move pending padding from the right of the rows to their left (BATCH-5).

        With nothing pending this changes nothing.
        """
        self._move_to_left(self._padding.right(self._columns))

    def _move_to_left(self, right: list[int]) -> None:
        """Make the newest ``right`` columns of each row padding at its left."""
        if self._buffers is not None and any(right):
            # Column c of a row comes from column c - right; those in front are padding now. The
            # spare columns are filled with anything.
            columns = mx.arange(grown_capacity(self._columns))
            source = (columns - mx.array(right)[:, None]) % self._columns
            keys, values = (
                mx.take_along_axis(rows, source[:, None, :, None], axis=2)
                for rows in self.keys_and_values()
            )
            self._buffers = keys, values
        self._padding.settle(right)


def _right_aligned(
    owner: str, name: str, parts: Sequence[tuple[mx.array | None, int]], columns: int
) -> mx.array:
    """Arrays (B, H, n, D), n <= columns, below each other, zeros in front of the shorter ones.

    Each comes with its number of rows, for those that are None.

    Raises:
        TypeError: the dtypes differ.
        ValueError: H or D differs.
    """
    first = next(array for array, _ in parts if array is not None)
    _, heads, _, head_dim = first.shape
    aligned = []
    for array, rows in parts:
        missing = columns if array is None else columns - array.shape[2]
        pieces = [mx.zeros((rows, heads, missing, head_dim), first.dtype)] if missing else []
        if array is not None:
            check_fits(owner, name, array, (rows, *first.shape[1:]), first.dtype)
            pieces.append(array)
        aligned.append(mx.concatenate(pieces, axis=2))
    return mx.concatenate(aligned, axis=0)
