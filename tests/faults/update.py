"""Faults of the update contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from reference_impl import KVCache, SlidingWindowKVCache
from reference_impl.buffers import joined
from tests.faults.bases import Rows, StepKVCache
from tests.faults.gallery import fault

# -- UPD-1: two results, one order -------------------------------------------------------------


@fault("UPD-1")
class ReturnsThree(KVCache):
    """It returns offset, too."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        return *super().update_and_fetch(keys, values), self._offset


@fault("UPD-1")
class ReturnsNothing(KVCache):
    """It stores and returns None."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        super().update_and_fetch(keys, values)


@fault("UPD-1")
class ReturnsNumpy(KVCache):
    """It returns arrays of numpy."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        return tuple(
            np.array(rows.astype(mx.float32)) for rows in super().update_and_fetch(keys, values)
        )


@fault("UPD-1")
class ReturnsValuesFirst(KVCache):
    """It returns (values, keys)."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        return values, keys


@fault("UPD-1")
class ReturnsWhatWasHeld(KVCache):
    """It returns the rows before the append."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        start = self._offset
        keys, values = super().update_and_fetch(keys, values)
        return keys[:, :, :start], values[:, :, :start]


@fault("UPD-1")
class ReversesItsValues(KVCache):
    """Values come newest first, keys oldest first."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        return keys, values[:, :, ::-1]


@fault("UPD-1")
class SwapsItsHeads(KVCache):
    """Values come back under the neighbouring head."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        return keys, mx.roll(values, 1, axis=1)


@fault("UPD-1", arguments="8")
class KeysInRingOrder(SlidingWindowKVCache):
    """Once tokens were dropped, keys are in the order of a ring and values in that of time."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        return mx.roll(keys, max(self._offset - self._window, 0), axis=2), values


@fault("UPD-1")
class FoldsItsHeads(KVCache):
    """Keys and values come back with 3 axes, heads and width in one."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        result = super().update_and_fetch(keys, values)
        return tuple(mx.flatten(mx.swapaxes(rows, 1, 2), 2) for rows in result)


# -- UPD-2: the retained tokens, none stale and none twice -------------------------------------


@fault("UPD-2")
class OneRowTooMany(KVCache):
    """It returns the spare row behind the tokens."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        super().update_and_fetch(keys, values)
        keys, values = self._buffers or (keys, values)
        return keys[:, :, : self._offset + 1], values[:, :, : self._offset + 1]


@fault("UPD-2")
class OneRowTooFew(KVCache):
    """It does not return the oldest token of several."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        new = keys.shape[2]
        keys, values = super().update_and_fetch(keys, values)
        first = int(self._offset > new)
        return keys[:, :, first:], values[:, :, first:]


@fault("UPD-2")
class ReturnsWhatItWasGiven(KVCache):
    """It returns the new rows only."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        super().update_and_fetch(keys, values)
        return keys, values


@fault("UPD-2")
class NewestTwice(KVCache):
    """The newest token comes back twice."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        return tuple(mx.concatenate([rows, rows[:, :, -1:]], axis=2) for rows in result)


@fault("UPD-2", arguments="8")
class DropsOneEarly(SlidingWindowKVCache):
    """It keeps one token less than the window needs."""

    def _rows_kept(self) -> int:
        return min(self._end - self._start, self._window - 2)


@fault("UPD-2", arguments="8, sinks=2")
class LosesItsSinks(SlidingWindowKVCache):
    """The sinks are overwritten by the oldest rows of the window once tokens are dropped."""

    def _copied_sinks(self, held: Rows) -> Rows:
        rows = mx.arange(self._end - self._rows_kept(), self._end)[: self._sinks]
        return mx.take(held[0], rows, axis=2), mx.take(held[1], rows, axis=2)


@fault("UPD-2")
class OverwritesTheNewest(KVCache):
    """A single token is written over the newest one, not behind it."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        start = self._offset
        keys, values = super().update_and_fetch(keys, values)
        if start and self._offset == start + 1:
            keep = mx.array([*range(start - 1), start, start])
            return mx.take(keys, keep, axis=2), mx.take(values, keep, axis=2)
        return keys, values


@fault("UPD-5")
class StoresHalfPrecision(KVCache):
    """It stores float16, and casts back on the way out."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        half = (rows.astype(mx.float16) for rows in (keys, values))
        result = super().update_and_fetch(*half)
        return tuple(rows.astype(keys.dtype) for rows in result)


# -- UPD-3: chunks -----------------------------------------------------------------------------
# What a query sees other than alone, it also sees other than it must: the mask contract says so.


@fault("UPD-3", also=("MASK-3",), arguments="8")
class WholeChunkSeesItself(SlidingWindowKVCache):
    """Within a chunk nothing is dropped: its queries see all of it, however long it is."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        mask = super().make_mask(N, return_array=return_array, window_size=window_size)
        if not isinstance(mask, mx.array) or self._window >= N:
            return mask
        chunk = mx.arange(mask.shape[1]) >= self._rows_kept()
        past = mx.arange(mask.shape[1]) <= self._rows_kept() + mx.arange(N)[:, None]
        return mask | (chunk & past)


# -- UPD-4: growth -----------------------------------------------------------------------------


@fault("UPD-4")
class GrowsByOneStep(StepKVCache):
    """A full buffer grows by one step, also for a chunk that needs more."""

    def _capacity(self, end: int) -> int:
        if self._buffers is None:
            return super()._capacity(end)
        return self._buffers[0].shape[2] + self.step


@fault("UPD-4")
class LosesTheSpareRows(StepKVCache):
    """A chunk that does not fit is written behind the full buffer, as if that had been filled."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        held = self._buffers
        if held is None or self._offset + keys.shape[2] <= held[0].shape[2]:
            return super().update_and_fetch(keys, values)
        start, new = held[0].shape[2], keys.shape[2]
        self._buffers = tuple(
            joined([rows, more], self._capacity(start + new))
            for rows, more in zip(held, (keys, values), strict=True)
        )
        self._offset += new
        return self.keys_and_values()


@fault("UPD-4")
class ForgetsAt300(KVCache):
    """The append that crosses 300 tokens loses the first one; nothing declares that number."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        start = self._offset
        super().update_and_fetch(keys, values)
        if start < 300 <= self._offset:
            self._buffers = tuple(mx.roll(rows, -1, axis=2) for rows in self._buffers)
        return self.keys_and_values()


@fault("UPD-4")
class ForgetsWhenExactlyFull(KVCache):
    """A single token that comes when exactly 100 are held wipes the first one."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        full = self._offset == 100 and keys.shape[2] == 1
        super().update_and_fetch(keys, values)
        if full:
            for rows in self._buffers:
                rows[:, :, :1] = 0
        return self.keys_and_values()


@fault("UPD-4")
class GrowsOnceOnly(KVCache):
    """Its capacity is 512; later tokens overwrite the last row."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        end = self._offset
        rows = mx.array([*range(min(end, 511)), *[end - 1] * (end - 511)])
        return mx.take(keys, rows, axis=2), mx.take(values, rows, axis=2)


@fault("UPD-4", arguments="64")
class DropsFromAChunk(SlidingWindowKVCache):
    """Of a chunk longer than the window it returns the last 2 W rows only."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        first = max(keys.shape[2] - 2 * self._window, 0)
        return keys[:, :, first:], values[:, :, first:]


# -- UPD-5: shapes and dtypes ------------------------------------------------------------------


@fault("UPD-5")
class ReturnsHalf(KVCache):
    """It gives bfloat16 back as float16."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        if keys.dtype == mx.bfloat16:
            return tuple(rows.astype(mx.float16) for rows in result)
        return result


@fault("UPD-5")
class ReturnsFloat32(KVCache):
    """It gives every dtype back as float32."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return tuple(rows.astype(mx.float32) for rows in super().update_and_fetch(keys, values))


@fault("UPD-16")
class ValuesInTheDtypeOfKeys(KVCache):
    """It casts values to the dtype of the keys."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return super().update_and_fetch(keys, values.astype(keys.dtype))


@fault("UPD-5")
class ValuesInTheWidthOfKeys(KVCache):
    """It makes room for values of the width of the keys, and fails after offset moved."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if values.shape[3] != keys.shape[3]:
            self._offset += keys.shape[2]
            raise ValueError(f"{type(self).__name__}: shapes cannot be broadcast")
        return super().update_and_fetch(keys, values)


@fault("UPD-5")
class PadsItsValues(KVCache):
    """It gives narrow values back in the width of the keys."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        missing = max(keys.shape[3] - values.shape[3], 0)
        return keys, mx.pad(values, [(0, 0), (0, 0), (0, 0), (0, missing)])


@fault("UPD-5")
class DividesByTheWidth(KVCache):
    """It crashes for values of width 0."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        assert keys.size // values.size >= 0
        return super().update_and_fetch(keys, values)


# -- UPD-6: wrong sizes ------------------------------------------------------------------------


def widened(rows: mx.array, held: mx.array, axis: int) -> mx.array:
    """``rows`` with an axis of size 1 repeated to that of ``held``."""
    if rows.shape[axis] == 1:
        return mx.repeat(rows, held.shape[axis], axis=axis)
    return rows


@fault("UPD-6")
class BroadcastsOneRequest(KVCache):
    """A batch of 1 is written to every row."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if self._buffers is not None:
            keys, values = widened(keys, self._buffers[0], 0), widened(values, self._buffers[1], 0)
        return super().update_and_fetch(keys, values)


@fault("UPD-6")
class BroadcastsOneHead(KVCache):
    """A single head is written to every head."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if self._buffers is not None:
            keys, values = widened(keys, self._buffers[0], 1), widened(values, self._buffers[1], 1)
        return super().update_and_fetch(keys, values)


@fault("UPD-6")
class TakesFewerValues(KVCache):
    """Fewer values than keys are accepted, the last one repeated."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        missing = keys.shape[2] - values.shape[2]
        if missing > 0:
            values = mx.concatenate([values, *[values[:, :, -1:]] * missing], axis=2)
        return super().update_and_fetch(keys, values)


@fault("UPD-6")
class RefusesWithRuntimeError(KVCache):
    """A wrong size is refused with RuntimeError."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        try:
            return super().update_and_fetch(keys, values)
        except ValueError as error:
            raise RuntimeError(str(error)) from None


# -- UPD-7: no tokens --------------------------------------------------------------------------


@fault("UPD-7")
class RefusesNoTokens(KVCache):
    """An append of no tokens raises."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.shape[2] == 0:
            raise ValueError(f"{type(self).__name__}: no tokens")
        return super().update_and_fetch(keys, values)


@fault("UPD-7")
class CountsNoTokens(KVCache):
    """An append of no tokens moves offset by 1."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.shape[2] == 0 and self._offset:
            self._offset += 1
            return self.keys_and_values()
        return super().update_and_fetch(keys, values)


@fault("UPD-7", arguments="8", effort="default")
class DropsForNoTokens(SlidingWindowKVCache):
    """An append of no tokens drops the oldest token."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.shape[2] == 0 and self._end - self._start > 1:
            self._start += 1
        return super().update_and_fetch(keys, values)


# -- UPD-8 and UPD-9: aliasing -----------------------------------------------------------------


@fault("UPD-8")
class ReturnsItsBuffers(StepKVCache):
    """A full buffer is returned itself, and written to in place after a trim."""

    def keys_and_values(self) -> Rows:
        if self._buffers is not None and self._offset == self._buffers[0].shape[2]:
            return self._buffers
        return super().keys_and_values()


@fault("UPD-9")
class TakesTheArraysOver(StepKVCache):
    """The arrays of the first append become its buffers, written to in place after a trim."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if self._buffers is None and keys.shape[2]:
            self._buffers = keys, values
            self._offset = keys.shape[2]
            return self.keys_and_values()
        return super().update_and_fetch(keys, values)


@fault("UPD-9")
class ScalesInPlace(KVCache):
    """It normalises the caller's keys in place."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        keys *= 0.5
        return result


# -- UPD-10: a call that raises ----------------------------------------------------------------


@fault("UPD-10")
class CountsWhatItRefuses(KVCache):
    """It moves offset, then finds that the arguments do not fit."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        try:
            return super().update_and_fetch(keys, values)
        except ValueError:
            self._offset += keys.shape[2] if self._buffers is not None else 0
            raise


@fault("UPD-10")
class WipesWhenItRefuses(KVCache):
    """A refused append wipes the keys."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        try:
            return super().update_and_fetch(keys, values)
        except ValueError:
            if self._buffers is not None:
                keys, values = self._buffers
                self._buffers = mx.zeros_like(keys), values
            raise


# -- UPD-11 and UPD-12: cost -------------------------------------------------------------------


@fault("UPD-11")
class GrowsByAFixedStep(StepKVCache):
    """It grows by 256 rows at a time: T * T / 512 rows are copied over T tokens."""


@fault("UPD-11")
class Concatenates(StepKVCache):
    """It makes a new buffer for each token."""

    def _capacity(self, end: int) -> int:
        return end


@fault("UPD-11")
class ReservesTooMuch(KVCache):
    """It makes room for eight times the tokens it holds."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._reserved = 8 * keys.shape[2]
        return super().update_and_fetch(keys, values)


@fault("UPD-12")
class EvaluatesTheRows(KVCache):
    """It evaluates the keys, to look at their values."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.size and keys.max().item() != keys.max().item():
            raise ValueError(f"{type(self).__name__}: NaN")
        return super().update_and_fetch(keys, values)


@fault("UPD-12")
class EvaluatesForTheMask(KVCache):
    """make_mask evaluates the buffers."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mx.eval(self._buffers or ())
        return super().make_mask(N, **options)


# -- UPD-13: rows of a batch -------------------------------------------------------------------
# The attention of such a batch is wrong as a whole, which is UPD-14.


@fault("UPD-13", also=("UPD-14",))
class MixesItsRows(KVCache):
    """Keys and values come back under the neighbouring row."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        return mx.roll(keys, 1, axis=0), mx.roll(values, 1, axis=0)


@fault("UPD-13", also=("UPD-14",))
class FirstRowForAll(KVCache):
    """Every row gets the first one."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        return tuple(mx.repeat(rows[:1], rows.shape[0], axis=0) for rows in result)


@fault("UPD-13", also=("UPD-14",))
class LastRowStays(KVCache):
    """A single token is not written to the last row of a batch."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        start = self._offset
        super().update_and_fetch(keys, values)
        if keys.shape[0] > 1 and start and self._offset == start + 1:
            for rows in self._buffers:
                rows[-1, :, start] = 0
        return self.keys_and_values()


# -- UPD-14: attention -------------------------------------------------------------------------


@fault("UPD-14")
class AdditiveInFloat32(KVCache):
    """Its masks are additive float32, which attention in half precision does not take."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        return mx.where(mask, 0.0, -mx.inf) if isinstance(mask, mx.array) else mask


@fault("UPD-14")
class LosesTokensInHalf(KVCache):
    """In half precision the oldest token is lost once more than 8 are held."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        keys, values = super().update_and_fetch(keys, values)
        if keys.dtype == mx.bfloat16 and self._offset > 8:
            first = (mx.arange(self._offset) > 0)[:, None]
            return keys * first.astype(keys.dtype), values * first.astype(keys.dtype)
        return keys, values


@fault("UPD-14")
class HidesFromTheSecondRow(KVCache):
    """In a batch the mask hides the first token from the second row."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        batch = 1 if self._buffers is None else self._buffers[0].shape[0]
        if batch == 1 or not isinstance(mask, mx.array):
            return mask
        rows = mx.arange(batch)[:, None, None, None]
        return mask & ((rows != 1) | (mx.arange(mask.shape[1]) > 0))


# -- UPD-15: a dtype that changes --------------------------------------------------------------


def cast_unless_full(cache: Any, keys: mx.array, values: mx.array) -> Rows:
    """New rows in the dtype of a buffer that has room; a full one is cast to theirs instead."""
    held = cache._buffers
    if held is None:
        return keys, values
    if cache._offset + keys.shape[2] > held[0].shape[2]:
        cache._buffers = tuple(rows.astype(keys.dtype) for rows in held)
        return keys, values
    return keys.astype(held[0].dtype), values.astype(held[1].dtype)


@fault("UPD-15")
class CastsUntilTheStepIsFull(StepKVCache):
    """Rows of another dtype are cast, unless its 256 rows are full."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return super().update_and_fetch(*cast_unless_full(self, keys, values))


@fault("UPD-15")
class CastsUntilItGrows(KVCache):
    """Rows of another dtype are cast, unless its buffers, of no declared size, are full."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return super().update_and_fetch(*cast_unless_full(self, keys, values))


@fault("UPD-15")
class CastsWhereOdd(KVCache):
    """Rows of another dtype are cast where an odd number of tokens is held, and refused else."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        held = self._buffers
        if held is not None and self._offset % 2:
            keys, values = keys.astype(held[0].dtype), values.astype(held[1].dtype)
        return super().update_and_fetch(keys, values)
