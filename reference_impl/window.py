"""A sliding-window KV cache, with or without attention sinks, in temporal order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_chunk, check_int, check_token, checked_rows
from reference_impl.buffers import grown_capacity, moved, slid
from reference_impl.masks import AttentionMask, attention_mask

if TYPE_CHECKING:
    from reference_impl.batch_window import BatchSlidingWindowKVCache

WindowState: TypeAlias = "tuple[mx.array | None, mx.array | None, int, int, int]"
"""Keys (B, H, L, Dk), values (B, H, L, Dv), offset, window, sinks; None for both if L = 0."""


class SlidingWindowKVCache:
    """Lets each query see the last ``window`` tokens, or the first ``sinks`` and the last others.

    With window W and K sinks, query i sees key j if j <= i and either j < K or i - (W - K) < j: a
    query sees at most W tokens, itself and the sinks included.

    An append of S tokens first drops what none of them can see, then returns the rest: the sinks,
    the recent tokens, the new ones. These are at most W - 1 + S rows, always in temporal order
    (WIN-1, WIN-3); so a single token in a full window gets W rows, all visible, and needs no mask.
    What is returned stays in the cache until the next append. ``offset`` counts every token ever
    appended (WIN-2).

    The rows lie side by side in two buffers of 2W - 1 rows, or fewer while few tokens were
    appended, or exactly as many as are returned if that is more. Each append moves the view to the
    right by the tokens it drops; at the end of a buffer the view is copied to the front of a new
    one, once in W one-token appends (WIN-6). Sinks move along in front of the view, onto rows that
    were just dropped, which costs K rows an append and keeps the view in one piece.

    Shapes, dtypes, refusals and aliasing are those of :class:`reference_impl.KVCache`.

    Args:
        window: tokens that a query sees, W.
        sinks: tokens at the start of the log that every query sees, K.

    Raises:
        TypeError: ``window`` or ``sinks`` is not an int.
        ValueError: W < 1, K < 0 or K >= W (WIN-5).
    """

    def __init__(self, window: int, *, sinks: int = 0) -> None:
        self._window, self._sinks = checked_window(type(self).__name__, window, sinks)
        self._offset = 0
        # Keys and values; what the last update returned are the rows from _start up to _end. The
        # others are spare, and hold anything. None while empty.
        self._buffers: tuple[mx.array, mx.array] | None = None
        self._start = 0
        self._end = 0
        # The rows of the sinks apart, from the first drop on. They could be read from the buffers
        # each time, but to read from a buffer and write to it in one graph prevents donation.
        self._sink_rows: tuple[mx.array, mx.array] | None = None

    @property
    def window(self) -> int:
        """Tokens that a query sees, itself and the sinks included."""
        return self._window

    @property
    def sinks(self) -> int:
        """Tokens at the start of the log that every query sees."""
        return self._sinks

    @property
    def offset(self) -> int:
        """Tokens ever appended, less those trimmed: the position of the next one (WIN-2, POS-2).

        Setting it trims to that many tokens, while that is possible (POS-7).

        Raises:
            TypeError: on setting anything but an int.
            ValueError: on setting it below 0 or above the present offset.
            RuntimeError: on lowering it when tokens have been dropped (REF-2).
        """
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        owner = type(self).__name__
        check_int(owner, "offset", offset, minimum=0)
        if offset > self._offset:
            raise ValueError(
                f"{owner}: offset can only be lowered, from {self._offset}, got {offset}"
            )
        if offset < self._offset and not self.is_trimmable():
            raise RuntimeError(
                f"{owner}: offset cannot be lowered from {self._offset} to {offset}, "
                "because tokens before the window have been dropped; see is_trimmable()"
            )
        self._end -= self._offset - offset
        self._offset = offset
        if offset == 0:
            self._buffers = None

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N tokens, asked before it; changes nothing (MASK-7).

        Args:
            N: number of new tokens.
            return_array: give an array instead of ``"causal"`` (MASK-5).
            window_size: None for the cache's own window. A smaller one narrows the band, in a cache
                without sinks. A larger one is served while it makes no difference.

        Returns:
            None, ``"causal"`` or a boolean array (N, L), L being the number of rows that the append
            will return; see :func:`reference_impl.masks.attention_mask`.

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
        if window_size > self._window and self._offset + N > self._window:
            raise ValueError(
                f"{owner}: window_size must be at most the window of {self._window} once more "
                f"tokens than that are logged, got {window_size}"
            )
        return attention_mask(
            N,
            self._offset,
            window=window_size,
            sinks=self._sinks,
            dropped=self._offset - self._rows_kept(),
            return_array=return_array,
        )

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S tokens; return the sinks, the recent tokens and the new ones (UPD-1, WIN-1).

        An append of no tokens changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv), L <= window - 1 + S, dtypes as they came.

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit.
        """
        held = self._buffers
        check_chunk(type(self).__name__, keys, values, held)
        if keys.shape[2] == 0:
            return (keys[...], values[...]) if held is None else self.keys_and_values()
        self._append(keys, values)
        return self.keys_and_values()

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        """Append one token, and fetch nothing (DEC-1); see
        :meth:`reference_impl.KVCache.write_token`.

        Args:
            key: (B, H, 1, Dk).
            value: (B, H, 1, Dv).

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: not one token, or a rank, batch size, head count or head dim that does not
                fit.
        """
        check_token(type(self).__name__, key, value, self._buffers)
        self._append(key, value)

    def get_kv(self, window: int | None = None) -> tuple[mx.array, mx.array]:
        """The newest ``window`` of the tokens held, or as many as there are, in temporal order;
        without ``window`` all of them, the sinks first (DEC-2).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv).

        Raises:
            TypeError: ``window`` is neither None nor an int.
            ValueError: ``window`` is below 1 (DEC-6).
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if window is not None:
            check_int(type(self).__name__, "window", window, minimum=1)
        keys, values = self.keys_and_values()
        if window is None or window >= self._end - self._start:
            return keys, values
        return keys[:, :, -window:], values[:, :, -window:]

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last update returned, less what was trimmed since (READ-1, READ-2).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv), in temporal order.

        Raises:
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return keys[:, :, self._start : self._end], values[:, :, self._start : self._end]

    def reset(self) -> None:
        """Forget everything: the cache is as a new one, shapes and dtypes included (DEC-3)."""
        self._offset = 0
        self._buffers = None
        self._start = self._end = 0
        self._sink_rows = None

    @property
    def state(self) -> WindowState:
        """The rows held, the offset and the window, as a snapshot (STATE-1 to STATE-4, STATE-6).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        if self._buffers is None:
            return None, None, 0, self._window, self._sinks
        return *self.keys_and_values(), self._offset, self._window, self._sinks

    @state.setter
    def state(self, state: WindowState) -> None:
        owner = type(self).__name__
        keys, values, offset, window, sinks = state
        checked_window(owner, window, sinks)
        check_int(owner, "state offset", offset, minimum=0)
        held = checked_rows(owner, keys, values)
        rows = 0 if held is None else held[0].shape[2]
        if rows > offset or rows < min(offset, window) or (held is not None and rows == 0):
            raise ValueError(
                f"{owner}: state must hold at least the rows of its window of {window} and at most "
                f"those that its offset says, and None for no rows, got {rows} rows for offset "
                f"{offset}"
            )
        self._window, self._sinks = window, sinks
        self._offset = offset
        self._buffers = held
        self._start, self._end = 0, rows
        self._sink_rows = None

    @classmethod
    def from_state(cls, state: WindowState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove tokens: True until an append has dropped some (TRIM-8).

        From then on a cache with fewer tokens would need rows that are gone.
        """
        return self._end - self._start == self._offset

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, offset)`` tokens and return their number (TRIM-1 to TRIM-4).

        Returns 0 and changes nothing once tokens have been dropped (TRIM-3).

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
        """
        check_int(type(self).__name__, "n", n, minimum=0)
        if not self.is_trimmable():
            return 0
        removed = min(n, self._offset)
        self.offset = self._offset - removed
        return removed

    @classmethod
    def merge(cls, caches: Sequence[SlidingWindowKVCache], /) -> BatchSlidingWindowKVCache:
        """A batch of the rows of ``caches``, from which ``extract`` takes them out again (BATCH-2).

        See :meth:`reference_impl.BatchSlidingWindowKVCache.merge`.
        """
        from reference_impl.batch_window import BatchSlidingWindowKVCache  # it needs this module

        return BatchSlidingWindowKVCache.merge(caches)

    def size(self) -> int:
        """Tokens that the newest query sees: ``min(offset, window)`` (MEAS-1)."""
        return min(self._offset, self._window)

    def empty(self) -> bool:
        """Whether no token is held (MEAS-2)."""
        return self._offset == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers and the sinks apart from them, spare rows included (MEAS-3)."""
        arrays = (self._buffers or ()) + (self._sink_rows or ())
        return sum(array.nbytes for array in arrays)

    def _append(self, keys: mx.array, values: mx.array) -> None:
        held = self._buffers
        new = keys.shape[2]
        kept = self._rows_kept()
        start, end = self._end - kept, self._end
        dropping = start > self._start
        sink_rows = self._sink_rows
        limit = max(kept + new, 2 * self._window - 1)
        if held is None:
            # Taken over without spare rows, since nothing is known yet about how many will follow;
            # but as new objects, which item assignments by the caller to its own do not reach.
            buffers = keys[...], values[...]
        else:
            if self._sinks and dropping and sink_rows is None:
                sink_rows = self._copied_sinks(held)
            sink_keys, sink_values = sink_rows or (None, None)
            if end + new <= held[0].shape[2] <= limit:
                buffers = (
                    slid(held[0], start, sink_keys, end, keys),
                    slid(held[1], start, sink_values, end, values),
                )
            else:
                # Once the window is full it slides with every token, so it gets all the room.
                capacity = limit if dropping else min(grown_capacity(kept + new), limit)
                buffers = (
                    moved(held[0], start, sink_keys, end, keys, capacity),
                    moved(held[1], start, sink_values, end, values, capacity),
                )
                start, end = 0, kept
        self._buffers = buffers
        self._start, self._end = start, end + new
        self._sink_rows = sink_rows
        self._offset += new

    def _rows_kept(self) -> int:
        """Rows of those held now that the next append still returns: all that it can see."""
        return min(self._end - self._start, self._window - 1)

    def _copied_sinks(self, held: tuple[mx.array, mx.array]) -> tuple[mx.array, mx.array]:
        """The first K rows of the view, in memory of their own, which a slice would not have."""
        keys, values = (
            mx.contiguous(buffer[:, :, self._start : self._start + self._sinks]) for buffer in held
        )
        return keys, values


def checked_window(owner: str, window: object, sinks: object) -> tuple[int, int]:
    """``window`` and ``sinks`` if they make sense together (WIN-5).

    Raises:
        TypeError: one of them is not an int.
        ValueError: window < 1, sinks < 0 or sinks >= window.
    """
    window = check_int(owner, "window", window, minimum=1)
    sinks = check_int(owner, "sinks", sinks, minimum=0)
    if sinks >= window:
        raise ValueError(f"{owner}: sinks must be fewer than the window of {window}, got {sinks}")
    return window, sinks
