"""A batch of sliding-window KV caches whose rows have different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from reference_impl.buffers import grown_capacity, moved, slid
from reference_impl.masks import AttentionMask, padded_attention_mask
from reference_impl.padding import NOTHING, Announced, RowPadding, checked_right_padding
from reference_impl.window import SlidingWindowKVCache, checked_window

BatchWindowState: TypeAlias = (
    "tuple[mx.array | None, mx.array | None, int, int, mx.array, mx.array, mx.array | None, "
    "int, int]"
)
"""Keys (B, H, L, Dk), values (B, H, L, Dv), columns, first column held, tokens gone (B,), left
padding (B,), announced padding at the right (B, 3) or None, window, sinks; None for keys and values
if there are no columns."""


@dataclass(frozen=True)
class _Row:
    """One row apart from its batch."""

    rows: tuple[mx.array, mx.array] | None
    """Keys and values (1, H, n, D): the sinks of those that are gone, then all from ``gone`` on."""
    length: int
    """Columns since its padding at the left, those of the right included; negative inside it."""
    gone: int
    announced: Announced

    def from_token(self, first: int, sinks: int, array: mx.array) -> list[mx.array]:
        """The rows of ``array``, one of ``rows``, of the tokens from ``first`` on, in pieces; zeros
        for those that are not held, or are padding and have negative numbers."""
        kept = min(sinks, self.gone)  # rows of sinks that come before those of the other tokens
        sink_rows = array[:, :, min(max(first, 0), kept) : kept]
        others = array[:, :, kept + max(first - self.gone, 0) :]
        before = _zeros(array, max(-first, 0))
        between = _zeros(array, max(self.gone - max(first, kept), 0))
        return [piece for piece in (before, sink_rows, between, others) if piece.shape[2]]


class BatchSlidingWindowKVCache:
    """Shows each of B rows what a :class:`SlidingWindowKVCache` alone would show it.

    The columns, the padding and what :meth:`prepare` and :meth:`finalize` do with it are those of
    :class:`reference_impl.BatchKVCache`. The window counts back from a query's own column, so
    that it never counts padding of its row. An append first drops the columns that no row needs any
    more: those that its window has left, but where newer columns are padding at the right in some
    row, so many more columns are kept (BATCH-6).

    The sinks of the rows are in different columns. They are kept, and returned, in K rows before
    the columns, from the time on when columns are dropped. The mask shows such a row to the queries
    of its sequence once the column of that sink is dropped, and not twice (WIN-3).

    An operation that moves rows (merge, extend, filter, extract, finalize) takes each apart from
    its batch and puts them together anew; it costs a copy of what is held.

    Args:
        window: tokens that a query sees, W.
        left_padding: columns of padding at the start of each row; its length is B. None is legal.
        sinks: tokens at the start of each row that its queries see for good, K.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: W < 1, K < 0, K >= W (WIN-5), or a negative number of columns.
    """

    def __init__(
        self, window: int, left_padding: Sequence[int] | mx.array, *, sinks: int = 0
    ) -> None:
        owner = type(self).__name__
        self._window, self._sinks = checked_window(owner, window, sinks)
        self._padding = RowPadding(checked_ints(owner, "left_padding", left_padding, minimum=0))
        self._columns = 0
        # The columns held are those from _first on. It is 0 or above _sinks: to drop no more
        # columns than the rows that are set apart for sinks would save nothing.
        self._first = 0
        # For each row, the number of leading tokens of which only sinks are held.
        self._gone = [0] * self._padding.rows
        # Keys and values; what the last update returned are the rows from _start up to _end. The
        # others are spare, and hold anything. None while there are no columns.
        self._buffers: tuple[mx.array, mx.array] | None = None
        self._start = 0
        self._end = 0
        # The rows of the sinks apart, as in SlidingWindowKVCache.
        self._sink_rows: tuple[mx.array, mx.array] | None = None

    @property
    def window(self) -> int:
        """Tokens that a query sees, itself and the sinks included."""
        return self._window

    @property
    def sinks(self) -> int:
        """Tokens at the start of each row that its queries see for good."""
        return self._sinks

    @property
    def left_padding(self) -> mx.array:
        """Columns of padding at the start of each row (B,); a new array at every read."""
        return mx.array(self._padding.left, mx.int32)

    @property
    def offset(self) -> mx.array:
        """Position of each row's next token (B,), whatever was dropped; a new array at every read
        (WIN-2, POS-1 to POS-6)."""
        return mx.array([self._columns - left for left in self._padding.left], mx.int32)

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N columns, asked before it; changes nothing (MASK-7).

        Args:
            N: number of new columns.
            return_array: give an array instead of ``"causal"`` (MASK-5).
            window_size: as for :meth:`SlidingWindowKVCache.make_mask`.

        Returns:
            A boolean array (B, 1, N, L) if the rows differ, else as for one row; see
            :func:`reference_impl.masks.padded_attention_mask`.

        Raises:
            TypeError: N or window_size is not an int.
            ValueError: N or window_size is below 1 (MASK-11); window_size asks for tokens that the
                cache does not show (MASK-10, WIN-4); window_size differs from the window of a cache
                with sinks.
        """
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is None:
            window_size = self._window
        else:
            check_int(owner, "window_size", window_size, minimum=1)
        if self._sinks and window_size != self._window:
            raise ValueError(
                f"{owner}: window_size must be the window of {self._window} or None beside sinks, "
                f"got {window_size}"
            )
        longest = self._columns + N - min(self._padding.left, default=0)
        if window_size > self._window and longest > self._window:
            raise ValueError(
                f"{owner}: window_size must be at most the window of {self._window} once more "
                f"tokens than that are logged, got {window_size}"
            )
        return padded_attention_mask(
            N,
            self._columns,
            self._padding.left,
            window=window_size,
            sinks=self._sinks,
            first=self._first_needed(),
            return_array=return_array,
        )

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S columns; return the sinks, the recent columns and the new ones (UPD-1, WIN-1).

        An append of no columns changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv), dtypes as they came. L <= window - 1 + S,
            but for columns kept on behalf of padding at the right.

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
        new = keys.shape[2]
        if new == 0:
            return (keys[...], values[...]) if held is None else self.keys_and_values()
        first = self._first_needed()
        apart = self._sinks if first else 0
        start, end = self._end - (self._columns - first) - apart, self._end
        sink_rows = self._sink_rows
        if held is None:
            # As in SlidingWindowKVCache: without spare rows, and as new objects.
            buffers = keys[...], values[...]
        else:
            if apart:
                sink_rows = self._sinks_before(held, first)
            sink_keys, sink_values = sink_rows or (None, None)
            rows = end - start + new
            limit = max(rows, 2 * self._window - 1)
            if end + new <= held[0].shape[2] <= limit:
                buffers = (
                    slid(held[0], start, sink_keys, end, keys),
                    slid(held[1], start, sink_values, end, values),
                )
            else:
                capacity = limit if first > self._first else min(grown_capacity(rows), limit)
                buffers = (
                    moved(held[0], start, sink_keys, end, keys, capacity),
                    moved(held[1], start, sink_values, end, values, capacity),
                )
                start, end = 0, end - start
        self._buffers = buffers
        self._start, self._end = start, end + new
        self._sink_rows = sink_rows
        self._first = first
        self._gone = [
            max(gone, first - left)
            for gone, left in zip(self._gone, self._padding.left, strict=True)
        ]
        self._columns += new
        self._padding.advance(new)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last update returned, less what was trimmed since (READ-1, READ-2).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv).

        Raises:
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return keys[:, :, self._start : self._end], values[:, :, self._start : self._end]

    @property
    def state(self) -> BatchWindowState:
        """What is held and what is padding, pending padding too, as a snapshot (STATE-1 to STATE-6,
        REST-7).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        keys, values = (None, None) if self._buffers is None else self.keys_and_values()
        return (
            keys,
            values,
            self._columns,
            self._first,
            mx.array(self._gone, mx.int32),
            *self._padding.to_arrays(),
            self._window,
            self._sinks,
        )

    @state.setter
    def state(self, state: BatchWindowState) -> None:
        owner = type(self).__name__
        keys, values, columns, first, gone, left_padding, announced, window, sinks = state
        checked_window(owner, window, sinks)
        check_int(owner, "state columns", columns, minimum=0)
        check_int(owner, "state first", first, minimum=0)
        padding = RowPadding.from_arrays(owner, left_padding, announced)
        tokens_gone = checked_ints(owner, "state gone", gone, minimum=0, length=padding.rows)
        held = checked_rows(owner, keys, values)
        shape = (padding.rows, 0) if held is None else (held[0].shape[0], held[0].shape[2])
        rows = columns - first + (sinks if first else 0)
        if shape != (padding.rows, rows) or (held is None) != (columns == 0):
            raise ValueError(
                f"{owner}: state must hold {padding.rows} rows of the columns from {first} to "
                f"{columns} and the sinks before them, and None for no columns, got {shape}"
            )
        if 0 < first <= sinks or any(
            first - left > max(columns - left - (window - sinks - 1), 0) for left in padding.left
        ):
            raise ValueError(
                f"{owner}: state must hold all columns that the window of {window} still needs, "
                f"got those from {first} to {columns}"
            )
        self._gone = [
            max(number, first - left)
            for number, left in zip(tokens_gone, padding.left, strict=True)
        ]
        self._window, self._sinks = window, sinks
        self._padding = padding
        self._columns, self._first = columns, first
        self._buffers = held
        self._start, self._end = 0, shape[1]
        self._sink_rows = None

    @classmethod
    def from_state(cls, state: BatchWindowState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove columns: True until a token was dropped (TRIM-8)."""
        return not any(self._gone)

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, columns)`` columns and return their number (TRIM-6).

        Columns that were dropped, since they were padding in all rows, are not counted. Returns 0
        and changes nothing once tokens have been dropped (TRIM-3).

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
        """
        check_int(type(self).__name__, "n", n, minimum=0)
        if not self.is_trimmable():
            return 0
        removed = min(n, self._columns - self._first)
        self._columns -= removed
        self._end -= removed
        self._padding.retract(removed)
        if self._columns == 0:
            self._buffers = None
            self._start = self._end = 0
        return removed

    def size(self) -> int:
        """Columns that the newest query sees, padding included (MEAS-1)."""
        return min(self._columns, self._window)

    def empty(self) -> bool:
        """Whether no column is held (MEAS-2)."""
        return self._columns == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers and the sinks apart from them, spare rows included (MEAS-3)."""
        arrays = (self._buffers or ()) + (self._sink_rows or ())
        return sum(array.nbytes for array in arrays)

    @classmethod
    def merge(cls, caches: Sequence[SlidingWindowKVCache], /) -> Self:
        """A batch of the rows of ``caches``, in their order; these are left as they are (BATCH-8).

        An empty cache counts as one row without tokens, which begins after the others' columns.

        Raises:
            TypeError: one of them is no :class:`SlidingWindowKVCache`, or they differ in dtypes.
            ValueError: there is none, or they differ in window, sinks, head count or head dims.
        """
        owner = cls.__name__
        if not caches:
            raise ValueError(f"{owner}: caches must hold at least one, got none")
        rows: list[_Row] = []
        for cache in caches:
            if not isinstance(cache, SlidingWindowKVCache):
                raise TypeError(
                    f"{owner}: caches must be SlidingWindowKVCache, got {type(cache).__name__}"
                )
            _check_window(owner, caches[0], cache)
            keys, values, offset, _, sinks = cache.state
            if keys is None or values is None:
                rows.append(_Row(None, 0, 0, NOTHING))
                continue
            held = keys.shape[2]
            gone = 0 if held == offset else offset - (held - sinks)
            for i in range(keys.shape[0]):
                row = keys[i : i + 1], values[i : i + 1]
                rows.append(_Row(row, offset, gone, NOTHING))
        merged = cls(caches[0].window, [0] * len(rows), sinks=caches[0].sinks)
        merged._put_together(rows)
        return merged

    def extend(self, other: Self, /) -> None:
        """Add the rows of ``other`` after those of this batch; it is left as it is (BATCH-4).

        Raises:
            TypeError: ``other`` is of another class, or holds other dtypes.
            ValueError: it differs in window, sinks, head count or head dims.
        """
        owner = type(self).__name__
        if not isinstance(other, BatchSlidingWindowKVCache):
            raise TypeError(f"{owner}: other must be a {owner}, got {type(other).__name__}")
        _check_window(owner, self, other)
        self._put_together(
            [self._taken(row) for row in range(self._padding.rows)]
            + [other._taken(row) for row in range(other._padding.rows)]
        )

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
        self._put_together([self._taken(row) for row in kept])

    def extract(self, index: int, /) -> SlidingWindowKVCache:
        """The tokens of one row as a cache with memory of its own (BATCH-2, BATCH-8, MEAS-4).

        Raises:
            TypeError: ``index`` is not an int.
            ValueError: there is no such row.
            RuntimeError: padding at the right is announced, and reaches back beyond the tokens that
                are held.
        """
        row = checked_row(type(self).__name__, index, self._padding.rows)
        taken = self._without_right("extract", row, self._padding.right(self._columns)[row])
        if taken.rows is None:
            return SlidingWindowKVCache(self._window, sinks=self._sinks)
        # A view would keep the memory of the whole batch alive.
        keys, values = (mx.contiguous(rows) for rows in taken.rows)
        return SlidingWindowKVCache.from_state(
            (keys, values, taken.length, self._window, self._sinks)
        )

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | mx.array | None = None,
        lengths: Sequence[int] | mx.array | None = None,
        right_padding: Sequence[int] | mx.array | None = None,
    ) -> None:
        """Announce padding in the columns to come (BATCH-6).

        For arguments and errors see :meth:`reference_impl.BatchKVCache.prepare`. Tails of
        rows can be cut off (``right_padding`` alone) if they are shorter than the last append, or
        if no token was dropped.
        """
        owner = type(self).__name__
        left = self._padding.checked_left(owner, left_padding, self._columns)
        before, after = checked_right_padding(owner, lengths, right_padding, self._padding.rows)
        if before is not None or after is not None:
            self._move_to_left("prepare", self._padding.right(self._columns, unfed=False))
            self._padding.announce(before, after)
        if left_padding is not None:
            self._padding.left = left

    def finalize(self) -> None:
        """Move pending padding from the right of the rows to their left (BATCH-5).

        With nothing pending this changes nothing.

        Raises:
            RuntimeError: what was announced reaches back beyond the tokens that are held.
        """
        self._move_to_left("finalize", self._padding.right(self._columns))

    def _move_to_left(self, operation: str, right: list[int]) -> None:
        """Make the newest ``right`` columns of each row padding at its left."""
        if any(right):
            rows = [self._without_right(operation, row, count) for row, count in enumerate(right)]
            self._put_together(rows)
        else:
            self._padding.settle(right)

    def _first_needed(self) -> int:
        """The first of the columns held now that the next append still returns."""
        needed = self._window - self._sinks - 1
        if self._padding.pending:
            # A row whose newest columns are padding needs a whole window of tokens before these.
            needed += max(self._padding.right(self._columns), default=0) + 1
        first = max(self._columns - needed, self._first)
        return first if first > self._sinks else 0

    def _sinks_before(
        self, held: tuple[mx.array, mx.array], first: int
    ) -> tuple[mx.array, mx.array]:
        """Rows with all sinks that are in columns before ``first``, and anything for the others."""
        rows = self._sink_rows
        left = self._padding.left
        if rows is None and self._first:
            # The first rows of the view, in memory of their own, which a slice would not have.
            place = mx.arange(self._start, self._start + self._sinks)
            rows = mx.take(held[0], place, axis=2), mx.take(held[1], place, axis=2)
        if rows is not None and not any(
            column + self._sinks > self._first and column < first for column in left
        ):
            return rows  # no sink is in a column that is dropped now
        columns = mx.array(left, mx.int32).reshape(len(left), 1, 1, 1)
        columns = columns + mx.arange(self._sinks)[:, None]
        place = columns - self._first + self._start + (self._sinks if self._first else 0)
        place = mx.clip(place, self._start, self._end - 1)
        keys, values = (mx.take_along_axis(buffer, place, axis=2) for buffer in held)
        if rows is None:
            return keys, values
        dropped_now = (columns >= self._first) & (columns < first)
        return mx.where(dropped_now, keys, rows[0]), mx.where(dropped_now, values, rows[1])

    def _taken(self, row: int) -> _Row:
        """One row apart from the batch."""
        left = self._padding.left[row]
        length, gone = self._columns - left, self._gone[row]
        announced = self._padding.announced[row]
        if self._buffers is None or length <= 0:
            return _Row(None, length, gone, announced)
        begin = self._start + (self._sinks if self._first else 0) + left - self._first
        # The sinks of tokens that are gone are in their columns while these are held, else apart.
        sinks = min(self._sinks, gone)
        apart = min(sinks, max(self._first - left, 0))
        spans = (
            (self._start, self._start + apart),
            (begin + apart, begin + sinks),
            (begin + gone, self._end),
        )
        keys, values = (
            mx.concatenate([buffer[row : row + 1, :, a:b] for a, b in spans if a < b], axis=2)
            for buffer in self._buffers
        )
        return _Row((keys, values), length, gone, announced)

    def _without_right(self, operation: str, row: int, right: int) -> _Row:
        """One row apart from the batch, without the padding at its right."""
        taken = replace(self._taken(row), announced=NOTHING)
        if not right or taken.rows is None:
            return taken
        length = taken.length - right
        if taken.gone and length - taken.gone < self._window - self._sinks:
            raise RuntimeError(
                f"{type(self).__name__}.{operation}: the {right} columns of right_padding of row "
                f"{row} reach back beyond the tokens held; keep them below the last append"
            )
        if length <= 0:
            return _Row(None, length, 0, NOTHING)
        keys, values = taken.rows
        kept = keys.shape[2] - right
        return _Row((keys[:, :, :kept], values[:, :, :kept]), length, taken.gone, NOTHING)

    def _put_together(self, rows: Sequence[_Row]) -> None:
        """Become the batch of these rows, all that one of them holds included.

        Raises:
            TypeError: their dtypes differ.
            ValueError: their head counts or head dims differ.
        """
        owner = type(self).__name__
        columns = max([row.length for row in rows] + [0])
        left = [columns - row.length for row in rows]
        first = min([start + row.gone for start, row in zip(left, rows, strict=True)] + [columns])
        if first <= self._sinks:
            first = 0
        sinks = self._sinks if first else 0
        held: list[tuple[mx.array, mx.array]] = []
        if columns:
            sample = next(row.rows for row in rows if row.rows is not None)
            for start, row in zip(left, rows, strict=True):
                parts: list[mx.array] = []
                for name, like, array in zip(
                    ("keys", "values"), sample, row.rows or (None, None), strict=True
                ):
                    if array is None:
                        parts.append(_zeros(like, sinks + columns - first))
                        continue
                    check_fits(owner, name, array, like.shape, like.dtype)
                    front = array[:, :, :sinks]
                    missing = _zeros(array, sinks - front.shape[2])
                    tokens = row.from_token(first - start, self._sinks, array)
                    parts.append(mx.concatenate([front, missing, *tokens], axis=2))
                held.append((parts[0], parts[1]))
        self._padding = RowPadding(left, [row.announced for row in rows])
        self._columns, self._first = columns, first
        self._gone = [row.gone for row in rows]
        self._sink_rows = None
        self._start = 0
        if columns:
            keys, values = (
                mx.concatenate(list(parts), axis=0) for parts in zip(*held, strict=True)
            )
            self._buffers = keys, values
            self._end = keys.shape[2]
        else:
            self._buffers = None
            self._end = 0


def _zeros(rows: mx.array, count: int) -> mx.array:
    """So many rows of zeros, (1, H, count, D) as those of ``rows``."""
    return mx.zeros((1, rows.shape[1], count, rows.shape[3]), rows.dtype)


def _check_window(
    owner: str,
    first: SlidingWindowKVCache | BatchSlidingWindowKVCache,
    other: SlidingWindowKVCache | BatchSlidingWindowKVCache,
) -> None:
    if (first.window, first.sinks) != (other.window, other.sinks):
        raise ValueError(
            f"{owner}: window and sinks must be {first.window} and {first.sinks} in all, got "
            f"{other.window} and {other.sinks}"
        )
