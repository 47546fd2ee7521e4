"""Faults of the window contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import ChunkedKVCache, SlidingWindowKVCache
from reference_impl.buffers import appended, joined
from reference_impl.masks import attention_mask
from tests.faults.bases import Rows
from tests.faults.gallery import fault

# -- WIN-1: bounded ----------------------------------------------------------------------------


@fault("WIN-1", arguments="8")
class NeverDrops(SlidingWindowKVCache):
    """It keeps every row, and hides the old ones by its mask."""

    def _rows_kept(self) -> int:
        return self._end - self._start


@fault("WIN-1", arguments="8")
class DropsOneRow(SlidingWindowKVCache):
    """Each append drops one row at most, however many it brings."""

    def _rows_kept(self) -> int:
        held = self._end - self._start
        return max(super()._rows_kept(), held - 1)


# -- WIN-2: absolute offset --------------------------------------------------------------------


# POS-2 says of every cache that offset goes up whatever is dropped.
@fault("WIN-2", also=("POS-2",), arguments="8")
class OffsetStopsAtTheWindow(SlidingWindowKVCache):
    """Its offset is at most W."""

    @property
    def offset(self) -> int:
        return min(self._offset, self._window)

    @offset.setter
    def offset(self, offset: int) -> None:
        SlidingWindowKVCache.offset.fset(self, offset)


@fault("WIN-2", also=("POS-2",), arguments="8")
class OffsetIsARingIndex(SlidingWindowKVCache):
    """Its offset is where in the ring the next token goes."""

    @property
    def offset(self) -> int:
        return self._offset % self._window

    @offset.setter
    def offset(self, offset: int) -> None:
        SlidingWindowKVCache.offset.fset(self, offset)


@fault("WIN-2", also=("POS-2",), arguments="8")
class OffsetIsTheRowsHeld(SlidingWindowKVCache):
    """Its offset is the number of rows it holds."""

    @property
    def offset(self) -> int:
        return self._end - self._start

    @offset.setter
    def offset(self, offset: int) -> None:
        SlidingWindowKVCache.offset.fset(self, offset)


# -- WIN-3: sinks ------------------------------------------------------------------------------
# The mask contract says the same of every mask, and WIN-4 of those that are asked without a window.


@fault("WIN-3", also=("MASK-3", "WIN-4", "UPD-3"), arguments="8, sinks=2")
class HidesItsSinksInAChunk(SlidingWindowKVCache):
    """The last query of a chunk does not see the sinks."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if isinstance(mask, mx.array) and N > 1 and self._offset >= self._window:
            last = mx.arange(N)[:, None] == N - 1
            return mask & ~(last & (mx.arange(mask.shape[1]) < self._sinks))
        return mask


@fault("WIN-3", also=("MASK-3", "MASK-6", "WIN-4", "UPD-3"), arguments="8, sinks=2")
class HidesItsSinksFromOneToken(SlidingWindowKVCache):
    """A single token does not see the sinks once tokens were dropped."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if N == 1 and self._offset > self._window:
            return mx.arange(self._rows_kept() + 1)[None] >= self._sinks
        return mask


# -- WIN-4: masks for the full context ---------------------------------------------------------


@fault("WIN-4", also=("MASK-2",), arguments="8")
class PromisesWhatWasDropped(SlidingWindowKVCache):
    """Asked without a window it makes a mask over every token that there ever was."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        if window_size is None:
            return attention_mask(N, self._offset, return_array=return_array)
        return super().make_mask(N, return_array=return_array, window_size=window_size)


@fault("WIN-4", also=("MASK-3", "MASK-4"), arguments="8")
class ShowsAllThatIsLeft(SlidingWindowKVCache):
    """Asked without a window it shows whatever rows are there."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        if window_size is None:
            return attention_mask(N, self._rows_kept(), return_array=return_array)
        return super().make_mask(N, return_array=return_array, window_size=window_size)


# -- WIN-5: senseless arguments ----------------------------------------------------------------


@fault("WIN-5", arguments="8")
class TakesAWindowOfZero(SlidingWindowKVCache):
    """A window below 1 is taken for 1."""

    def __init__(self, window: int, *, sinks: int = 0) -> None:
        super().__init__(max(window, 1), sinks=sinks)


@fault("WIN-5", arguments="8, sinks=2")
class TakesNegativeSinks(SlidingWindowKVCache):
    """A negative number of sinks is taken for none."""

    def __init__(self, window: int, *, sinks: int = 0) -> None:
        super().__init__(window, sinks=max(sinks, 0))


@fault("WIN-5", arguments="8, sinks=2")
class TakesSinksWithoutRoom(SlidingWindowKVCache):
    """Sinks that fill the window are taken."""

    def __init__(self, window: int, *, sinks: int = 0) -> None:
        super().__init__(window, sinks=min(sinks, window - 1) if window > 0 else sinks)


# -- WIN-6: memory -----------------------------------------------------------------------------


@fault("WIN-6", arguments="8")
class HoldsWhatItDropped(SlidingWindowKVCache):
    """Its buffers grow with the log; the rows before the window are never freed."""

    def _append(self, keys: mx.array, values: mx.array) -> None:
        held = self._buffers
        kept, new = self._rows_kept(), keys.shape[2]
        if held is None:
            self._buffers = keys[...], values[...]
        else:
            self._buffers = appended(held[0], self._end, keys), appended(held[1], self._end, values)
        self._start, self._end = self._end - kept, self._end + new
        self._offset += new


@fault("WIN-6", arguments="8")
class ReservesAContext(SlidingWindowKVCache):
    """Each buffer has room for 256 rows at least."""

    def _append(self, keys: mx.array, values: mx.array) -> None:
        super()._append(keys, values)
        start, end = self._start, self._end
        held = self.keys_and_values()
        self._buffers = tuple(joined([rows], max(256, end - start)) for rows in held)
        self._start, self._end = 0, end - start


# -- WIN-7: arrays that were handed out --------------------------------------------------------


@fault("WIN-7", arguments="8")
class RingIsWrittenInPlace(SlidingWindowKVCache):
    """A full window is moved up by one row in place, and is what the last append returned."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        held, full = self._buffers, self._end == self._window and self._start == 0
        if held is None or not full or keys.shape[2] != 1 or held[0].shape[2] != self._window:
            super().update_and_fetch(keys, values)
            self._buffers = self.keys_and_values()
            self._start, self._end = 0, self._buffers[0].shape[2]
            return self._buffers
        for rows, new in zip(held, (keys, values), strict=True):
            rows[:, :, :-1] = rows[:, :, 1:]
            rows[:, :, -1:] = new
        self._offset += 1
        return held


@fault("WIN-7", arguments="8")
class BlanksWhatItDrops(SlidingWindowKVCache):
    """Rows that are dropped are zeroed in the arrays that the last append returned."""

    _shown: tuple[mx.array, ...] = ()

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        dropped = self._end - self._start - self._rows_kept() if keys.shape[2] else 0
        if dropped:
            for rows in self._shown:
                rows[:, :, :dropped] = 0
        result = super().update_and_fetch(keys, values)
        self._shown = result
        return result


# -- WIN-8: chunks -----------------------------------------------------------------------------


@fault("WIN-8", arguments="8")
class KeepsItsFront(ChunkedKVCache):
    """maybe_trim_front does nothing."""

    def maybe_trim_front(self) -> None:
        pass


@fault("WIN-8", arguments="8")
class KeepsTheChunkBefore(ChunkedKVCache):
    """maybe_trim_front keeps the last chunk that is over, too."""

    def maybe_trim_front(self) -> None:
        if self._offset - self._start_position >= 3 * self._chunk_size:
            super().maybe_trim_front()


# size() is offset less start_position.
@fault("WIN-8", arguments="8", also=("MEAS-1",))
class StartStaysAtZero(ChunkedKVCache):
    """start_position is 0 when the front was dropped."""

    @property
    def start_position(self) -> int:
        return 0


# size() is offset less start_position.
@fault("WIN-8", arguments="8", also=("MEAS-1",))
class StartMovesAlone(ChunkedKVCache):
    """maybe_trim_front moves what start_position says, and keeps the rows."""

    @property
    def start_position(self) -> int:
        return self._offset - self._offset % self._chunk_size

    def maybe_trim_front(self) -> None:
        if self._offset - self._start_position >= 3 * self._chunk_size:
            super().maybe_trim_front()


# The mask that the model makes of the positions does not hide that row (UPD-2).
@fault("WIN-8", also=("UPD-2",), arguments="8")
class ReturnsARowTooMany(ChunkedKVCache):
    """Once its front was dropped an append returns a row of zeros in its place."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        rows = super().update_and_fetch(keys, values)
        if not self._start_position:
            return rows
        return tuple(mx.pad(part, [(0, 0), (0, 0), (1, 0), (0, 0)]) for part in rows)
