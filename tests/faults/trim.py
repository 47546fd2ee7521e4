"""Faults of the trim contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import BatchKVCache, ChunkedKVCache, KVCache, SlidingWindowKVCache
from tests.faults.gallery import Absent, fault

# -- TRIM-1: the newest tokens -----------------------------------------------------------------
# What keys_and_values() gives is what was trimmed as much as what the next append returns.


@fault("TRIM-1", also=("READ-1", "READ-2"))
class LeavesTheRows(KVCache):
    """trim lowers offset and leaves the rows; the next append goes behind them."""

    _left = 0

    @property
    def offset(self) -> int:
        return self._offset - self._left

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset + self._left)

    def trim(self, n: int) -> int:
        removed = min(n, self.offset)
        self._left += removed
        return removed

    def size(self) -> int:
        return self.offset


@fault("TRIM-1", also=("READ-1", "READ-2"))
class TrimsTheOldest(KVCache):
    """trim removes the oldest tokens."""

    def trim(self, n: int) -> int:
        before = self._offset
        removed = super().trim(n)
        if self._buffers is not None and removed:
            self._buffers = tuple(rows[:, :, removed:before] for rows in self._buffers)
        return removed


@fault("TRIM-1", also=("READ-1",))
class TrimsOlderValues(KVCache):
    """trim removes the newest keys and the oldest values."""

    def trim(self, n: int) -> int:
        before = self._offset
        removed = super().trim(n)
        if self._buffers is not None and removed:
            keys, values = self._buffers
            self._buffers = keys[:, :, : self._offset], values[:, :, removed:before]
        return removed


# TRIM-2 and TRIM-4 rest on the count.
@fault("TRIM-1", also=("TRIM-2", "TRIM-4"))
class TrimReturnsNothing(KVCache):
    """trim returns None."""

    def trim(self, n: int) -> Any:
        super().trim(n)


# -- TRIM-2: as many as it promised ------------------------------------------------------------


@fault("TRIM-2", also=("TRIM-4",))
class TrimsOneAtATime(KVCache):
    """trim removes one token, whatever it is asked to."""

    def trim(self, n: int) -> int:
        return super().trim(min(n, 1))


@fault("TRIM-2", also=("TRIM-4",))
class TrimsWithinABlock(KVCache):
    """trim does not go back over the start of a block of 4."""

    def trim(self, n: int) -> int:
        return super().trim(min(n, self._offset % 4))


@fault("TRIM-2", also=("TRIM-4",), arguments="8", effort="default")
class TrimsNothingOnceFull(SlidingWindowKVCache):
    """trim does nothing in a window that is just full, and is_trimmable() is True."""

    def trim(self, n: int) -> int:
        return 0 if self._offset == self._window else super().trim(n)


# -- TRIM-3: a trim that is refused ------------------------------------------------------------


def taken_back(cache: Any, n: int) -> int:
    """Trim a window as if no tokens were missing before it."""
    removed = min(n, cache._end - cache._start)
    cache._offset -= removed
    cache._end -= removed
    return removed


@fault("TRIM-3", arguments="8")
class TrimsAWrappedWindow(SlidingWindowKVCache):
    """trim works although is_trimmable() is False, and leaves holes in the window."""

    def trim(self, n: int) -> int:
        return super().trim(n) if self.is_trimmable() else taken_back(self, n)


@fault("TRIM-3", arguments="8")
class TrimsAndSaysNothing(SlidingWindowKVCache):
    """Once tokens were dropped trim returns 0, having lowered offset."""

    def trim(self, n: int) -> int:
        if self.is_trimmable():
            return super().trim(n)
        self._offset -= min(n, self._offset - 1)
        return 0


@fault("TRIM-3", arguments="8")
class TrimsThenRaises(SlidingWindowKVCache):
    """Once tokens were dropped trim raises, having removed rows."""

    def trim(self, n: int) -> int:
        if self.is_trimmable():
            return super().trim(n)
        taken_back(self, n)
        raise RuntimeError(f"{type(self).__name__}: the window has wrapped")


@fault("TRIM-3", arguments="8")
class SaysItTrimmed(ChunkedKVCache):
    """Once its front was dropped trim removes nothing and returns n."""

    def trim(self, n: int) -> int:
        return super().trim(n) or n


# -- TRIM-4: 0, and more than there is ---------------------------------------------------------


@fault("TRIM-4")
class TrimZeroClears(KVCache):
    """trim(0) removes everything, as the slice [:-0] does."""

    def trim(self, n: int) -> int:
        removed = super().trim(n)
        if n == 0:
            self.offset = 0
        return removed


@fault("TRIM-4")
class TrimZeroRaises(KVCache):
    """trim(0) raises."""

    def trim(self, n: int) -> int:
        if n < 1:
            raise ValueError(f"{type(self).__name__}: n must be at least 1")
        return super().trim(n)


@fault("TRIM-4")
class TrimsNothingOfTooMuch(KVCache):
    """Asked for more than it holds it removes nothing."""

    def trim(self, n: int) -> int:
        return super().trim(n) if n <= self._offset else 0


@fault("TRIM-4")
class TrimReturnsWhatWasAsked(KVCache):
    """trim returns n also where fewer tokens are held."""

    def trim(self, n: int) -> int:
        super().trim(n)
        return n


@fault("TRIM-4")
class RefusesToTrimTooMuch(KVCache):
    """Asked for more than it holds it raises."""

    def trim(self, n: int) -> int:
        if n > self._offset:
            raise ValueError(f"{type(self).__name__}: cannot trim {n}")
        return super().trim(n)


# -- TRIM-5: trim is there ---------------------------------------------------------------------


@fault("TRIM-5", arguments="8")
class TurnsTrimmable(SlidingWindowKVCache):
    """is_trimmable() is True once it holds tokens, and there is no trim."""

    trim = Absent()

    def is_trimmable(self) -> bool:
        return self._offset > 0


# -- TRIM-6: columns of a batch ----------------------------------------------------------------
# POS-6 says of trims, too, that offset has its range, below 0 by a row's own padding.


@fault("TRIM-6", also=("READ-1", "READ-2"), arguments="[2, 0, 5]")
class TrimsTheLongestRowOnly(BatchKVCache):
    """trim takes columns from the longest row, and older ones from the others."""

    def trim(self, n: int) -> int:
        before = self._columns
        removed = super().trim(n)
        if self._buffers is not None and removed:
            longest = mx.array([left == 0 for left in self._padding.left])[:, None, None, None]
            self._buffers = tuple(
                mx.where(longest, rows[:, :, : self._columns], rows[:, :, removed:before])
                for rows in self._buffers
            )
        return removed


@fault("TRIM-6", also=("POS-6",), arguments="[2, 0, 5]")
class PaddingEndsWithTheRows(BatchKVCache):
    """A row that is trimmed into its padding has no padding to come."""

    def trim(self, n: int) -> int:
        removed = super().trim(n)
        self._padding.left[:] = [min(left, self._columns) for left in self._padding.left]
        return removed


@fault("TRIM-6", also=("POS-6",), arguments="[2, 0, 5]")
class TrimsPadding(BatchKVCache):
    """trim takes columns of padding from the rows that have some, and tokens from the others."""

    def trim(self, n: int) -> int:
        removed = super().trim(n)
        self._padding.left[:] = [max(left - removed, 0) for left in self._padding.left]
        return removed


# -- TRIM-7: less than nothing -----------------------------------------------------------------


@fault("TRIM-7")
class NegativeTrimAdvances(KVCache):
    """trim(-n) moves offset past the rows that were written."""

    def trim(self, n: int) -> int:
        removed = min(n, self._offset)
        self._offset -= removed
        return removed


@fault("TRIM-7")
class NegativeTrimIsTrim(KVCache):
    """trim(-n) trims n."""

    def trim(self, n: int) -> int:
        return super().trim(abs(n))


@fault("TRIM-7")
class NegativeTrimIsAssertion(KVCache):
    """trim(-n) is an AssertionError."""

    def trim(self, n: int) -> int:
        assert n >= 0
        return super().trim(n)


# -- TRIM-8: a front that is gone --------------------------------------------------------------


@fault("TRIM-8", arguments="8")
class SaysTrimmableThroughout(SlidingWindowKVCache):
    """is_trimmable() is True when trim can only return 0."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        return super().trim(n) if super().is_trimmable() else 0


@fault("TRIM-8", arguments="8")
class TrimsItsChunk(ChunkedKVCache):
    """is_trimmable() is True when trim can go back to the start of the chunk only."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        removed = min(n, self.size())
        if super().is_trimmable() or removed < 0:
            return super().trim(n)
        self._offset -= removed
        return removed
