"""Faults of the mask contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import KVCache, SlidingWindowKVCache
from reference_impl.masks import attention_mask
from tests.faults.bases import EvictingKVCache
from tests.faults.gallery import Absent, fault


def positions(cache: Any, N: int) -> tuple[mx.array, mx.array]:
    """Positions of the N queries (a column) and of all keys of a cache that drops nothing."""
    end = cache._offset + N
    return mx.arange(cache._offset, end)[:, None], mx.arange(end)


# -- MASK-1: the common form -------------------------------------------------------------------


@fault("MASK-1")
class RejectsWindowSize(KVCache):
    """make_mask has no window_size."""

    def make_mask(self, N: int, /, *, return_array: bool = False) -> Any:
        return super().make_mask(N, return_array=return_array)


@fault("MASK-1")
class NoMaskWhileEmpty(KVCache):
    """make_mask reads the buffers, which an empty cache does not have."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        assert self._buffers[0].ndim == 4
        return super().make_mask(N, **options)


@fault("MASK-1")
class OneTokenOnceFilled(KVCache):
    """make_mask raises for a chunk that comes after the first one."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        if self._offset and N > 1:
            raise NotImplementedError(f"{type(self).__name__}: one token at a time")
        return super().make_mask(N, **options)


# -- MASK-2: shape -----------------------------------------------------------------------------


@fault("MASK-2")
class MaskOfNewTokensOnly(KVCache):
    """The mask is N wide, as if nothing was held."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        return attention_mask(N, 0, window=window_size, return_array=return_array)


@fault("MASK-2", arguments="8")
class MaskOfTheWholeLog(SlidingWindowKVCache):
    """The mask is sized from offset, and the append returns fewer rows."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        window = min(window_size or self._window, self._window)
        return attention_mask(N, self._offset, window=window, return_array=return_array)


@fault("MASK-2")
class MaskOfTheBuffer(KVCache):
    """The mask is as wide as the buffer, its spare rows included."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if self._buffers is None or not isinstance(mask, mx.array):
            return mask
        spare = max(self._buffers[0].shape[2] - mask.shape[1], 0)
        return mx.pad(mask, [(0, 0), (0, spare)])


@fault("MASK-2")
class OneColumnShort(KVCache):
    """The mask has no column for the oldest key."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mask[:, 1:] if isinstance(mask, mx.array) else mask


@fault("MASK-2", arguments="8")
class OneColumnTooMany(SlidingWindowKVCache):
    """The mask counts the row that the append drops."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if isinstance(mask, mx.array) and self._offset > self._rows_kept():
            return mx.pad(mask, [(0, 0), (1, 0)])
        return mask


@fault("MASK-2", arguments="8")
class ColumnOfTheWindow(SlidingWindowKVCache):
    """The mask of one token is a column of shape (window, 1), not a row."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mask.T if isinstance(mask, mx.array) and N == 1 else mask


@fault("MASK-2", claims={"batch_sizes": [2]})
class BatchMaskWithoutHeads(KVCache):
    """The mask is (B, N, L), which broadcasts over the heads instead of the rows."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mx.stack([mask, mask]) if isinstance(mask, mx.array) else mask


# -- MASK-3: arrays ----------------------------------------------------------------------------
# A mask that is wrong for chunks and right for one token also shows a query other tokens in a
# chunk than alone, which is UPD-3.


@fault("MASK-3")
class SeesOneAhead(KVCache):
    """The array mask lets each query see the token after it."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        mask = super().make_mask(N, window_size=window_size, **options)
        if isinstance(mask, mx.array) and window_size is None:
            queries, keys = positions(self, N)
            return keys <= queries + 1
        return mask


@fault("MASK-3", also=("UPD-3",))
class HidesItself(KVCache):
    """The array mask of a chunk hides each query's own token."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if isinstance(mask, mx.array) and N > 1:
            queries, keys = positions(self, N)
            return mask & (keys != queries)
        return mask


@fault("MASK-3")
class AlignsUpperLeft(KVCache):
    """The array mask of a chunk is causal from the first key on, not up to the last."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        mask = super().make_mask(N, window_size=window_size, **options)
        if isinstance(mask, mx.array) and window_size is None:
            return mx.arange(self._offset + N) <= mx.arange(N)[:, None]
        return mask


@fault("MASK-3", also=("UPD-3",))
class GrowsItsWindowInAChunk(KVCache):
    """Each query of a chunk sees as far back as the first one does."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        mask = super().make_mask(N, window_size=window_size, **options)
        if isinstance(mask, mx.array) and N > 1 and window_size is not None:
            queries, keys = positions(self, N)
            return (keys <= queries) & (keys > self._offset - window_size)
        return mask


# With the window one token wider than it was asked, "causal" is given one token too long.
@fault("MASK-3", also=("MASK-4", "UPD-3"))
class WindowOneTooWide(KVCache):
    """The window of a chunk has one token more than was asked for."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        if window_size is not None and N > 1:
            window_size += 1
        return super().make_mask(N, window_size=window_size, **options)


@fault("MASK-3", also=("UPD-3",), arguments="8, sinks=2")
class SinksScrollAway(SlidingWindowKVCache):
    """The mask of a chunk treats the sinks as the oldest rows of the window."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if isinstance(mask, mx.array) and N > 1:
            rows = mask.shape[1]
            return mask & (mx.arange(rows) > mx.arange(rows - N, rows)[:, None] - self._window)
        return mask


@fault("MASK-3", also=("UPD-3",), arguments="8")
class MaskInRingOrder(SlidingWindowKVCache):
    """Once tokens were dropped, the mask of a chunk is in the order of a ring, the rows are not."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if isinstance(mask, mx.array) and N > 1 and self._offset > self._window:
            return mx.roll(mask, 1, axis=1)
        return mask


@fault("MASK-3", also=("UPD-3",))
class TrueMeansHidden(KVCache):
    """The array mask of a chunk is True where nothing may be attended."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return ~mask if isinstance(mask, mx.array) and N > 1 else mask


# -- MASK-4: None and "causal" -----------------------------------------------------------------


@fault("MASK-4", also=("UPD-3",))
class CausalDespiteWindow(KVCache):
    """A chunk gets "causal" although its window hides tokens."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        mask = super().make_mask(N, return_array=return_array, **options)
        return "causal" if N > 1 and not return_array else mask


@fault("MASK-4", also=("UPD-3",))
class NoneForAChunk(KVCache):
    """A chunk gets None, so that each query sees its future."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return None if isinstance(mask, str) else mask


@fault("MASK-4", also=("UPD-3",), arguments="8")
class CausalOnceFull(SlidingWindowKVCache):
    """A chunk gets "causal" although W - 1 + N rows come back and the window hides the oldest."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        mask = super().make_mask(N, return_array=return_array, **options)
        full = self._offset >= self._window
        return "causal" if full and N > 1 and not return_array else mask


# The arrays that were asked for ignore the window, too.
@fault("MASK-4", also=("MASK-3", "UPD-3"))
class IgnoresWindowForAChunk(KVCache):
    """window_size is ignored for more than one token."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        return super().make_mask(N, window_size=window_size if N == 1 else None, **options)


# -- MASK-5 ------------------------------------------------------------------------------------


@fault("MASK-5")
class IgnoresReturnArray(KVCache):
    """A chunk gets "causal" although an array was asked for."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        return super().make_mask(N, **options)


# None shows each query its future.
@fault("MASK-5", also=("MASK-4",))
class NoArrayForThePrompt(KVCache):
    """An empty cache gives None although an array was asked for."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        if return_array and not self._offset:
            return None
        return super().make_mask(N, return_array=return_array, **options)


# -- MASK-6: one token and a window ------------------------------------------------------------
# Alone a query sees other tokens than in a chunk, which is UPD-3.


@fault("MASK-6", also=("UPD-3",))
class IgnoresWindowForOneToken(KVCache):
    """window_size is ignored for one token."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        return super().make_mask(N, window_size=None if N == 1 else window_size, **options)


@fault("MASK-6", also=("UPD-3",))
class OneTokenSeesOneMore(KVCache):
    """The window of one token does not count the token itself."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        if window_size is not None and N == 1:
            window_size += 1
        return super().make_mask(N, window_size=window_size, **options)


@fault("MASK-6", also=("UPD-3",))
class OneTokenSeesOneLess(KVCache):
    """The window of one token is one token short."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        if window_size is not None and window_size > 1 and N == 1:
            window_size -= 1
        return super().make_mask(N, window_size=window_size, **options)


@fault("MASK-6", arguments="8")
class IgnoresNarrowerWindow(SlidingWindowKVCache):
    """A window narrower than the cache's own is ignored for one token."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        return super().make_mask(N, window_size=None if N == 1 else window_size, **options)


# -- MASK-7 ------------------------------------------------------------------------------------


@fault("MASK-7")
class EveryOtherMaskIsAnArray(KVCache):
    """Two equal calls give None and then an array."""

    _asked = 0

    def make_mask(self, N: int, /, **options: Any) -> Any:
        self._asked += 1
        mask = super().make_mask(N, **options)
        if mask is None and self._asked % 2:
            return mx.ones((N, self._offset + N), dtype=mx.bool_)
        return mask


# keys_and_values then gives less than the last update returned.
@fault("MASK-7", also=("READ-1",), arguments="8")
class DropsWhenMasked(SlidingWindowKVCache):
    """make_mask already drops the rows that the next append will drop."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        self._start = self._end - self._rows_kept()
        return mask


# -- MASK-8 ------------------------------------------------------------------------------------
# A mask that is added is read as hiding where it is not 0: here it hides what it should show. One
# query that sees everything has no mask, so alone it sees other tokens than in a chunk (UPD-3).


@fault("MASK-8", also=("MASK-3", "MASK-6", "UPD-3"))
class IntegerMask(KVCache):
    """The array mask is of integers."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mask.astype(mx.int32) if isinstance(mask, mx.array) else mask


@fault("MASK-8", also=("MASK-3", "MASK-6", "UPD-3"))
class ZeroOneMask(KVCache):
    """The array mask is of floats, 1 where a token may be attended."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mask.astype(mx.float32) if isinstance(mask, mx.array) else mask


# The weights of the hidden tokens are e times smaller, and not 0.
@fault("MASK-8", also=("UPD-14",))
class HidesWithMinusOne(KVCache):
    """The additive mask is -1 where a token is hidden, which hides nothing."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mx.where(mask, 0.0, -1.0) if isinstance(mask, mx.array) else mask


# No attention takes the word.
@fault("MASK-8", also=("UPD-14",))
class AnotherWord(KVCache):
    """A chunk gets a word that no attention knows."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return "lower_right" if isinstance(mask, str) else mask


# -- SHOULD ------------------------------------------------------------------------------------


@fault("MASK-9")
class AlwaysAnArray(KVCache):
    """Every chunk gets an array."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        return super().make_mask(N, return_array=True, **options)


@fault("MASK-9")
class ArrayForOneToken(KVCache):
    """One token gets an array that hides nothing."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if mask is None:
            return mx.ones((1, self._offset + 1), dtype=mx.bool_)
        return mask


@fault("MASK-10", arguments="8")
class ShortensTheContext(SlidingWindowKVCache):
    """A window wider than its own is cut to its own without a word."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        if window_size is not None:
            window_size = min(window_size, self._window)
        return super().make_mask(N, window_size=window_size, **options)


@fault("MASK-11")
class RaisesSizesToOne(KVCache):
    """N and window_size below 1 are taken as 1."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        if window_size is not None:
            window_size = max(window_size, 1)
        return super().make_mask(max(N, 1), window_size=window_size, **options)


@fault("MASK-11")
class AssertsItsSizes(KVCache):
    """window_size below 1 meets an assertion, which -O removes."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        assert window_size is None or window_size > 0
        return super().make_mask(N, window_size=window_size, **options)


# Consumers take "causal" for it, which shows a chunk more than the window: a query sees other
# tokens than alone, and other attention than the declared one.
@fault("MASK-12", also=("UPD-3", "UPD-14"), arguments="8")
class WindowWithoutMask(SlidingWindowKVCache):
    """It has a window and no make_mask."""

    make_mask = Absent()


EVICTING = {"visibility": "lossy"}


@fault("MASK-2", claims=EVICTING)
class MasksWhatItEvicted(EvictingKVCache):
    """Evicts before it returns, and its mask is as wide as if it had not."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        super().update_and_fetch(keys, values)
        return self._kept or (keys, values)


@fault("MASK-3", claims=EVICTING)
class HidesTheQueryItself(EvictingKVCache):
    """In a multi-token step the first query does not see itself."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        if N == 1:
            return None
        mask = super().make_mask(N, return_array=True)
        return mask & (mx.arange(mask.shape[1]) != self.size())


@fault("MASK-12", claims=EVICTING)
class EvictsWithoutMask(KVCache):
    """It may evict and has no make_mask."""

    make_mask = Absent()


@fault("MASK-13")
class NeedsItsOptions(KVCache):
    """make_mask(N) raises, for its options have no defaults."""

    def make_mask(self, N: int, /, *, return_array: bool, window_size: int | None) -> Any:
        return super().make_mask(N, return_array=return_array, window_size=window_size)
