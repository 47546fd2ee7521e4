"""Faults of the decode contract."""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx

from reference_impl import BatchedDecode, CacheLayout, KVCache, SlidingWindowKVCache
from tests.faults.bases import Rows, StepKVCache
from tests.faults.gallery import fault

# -- DEC-1: write_token ------------------------------------------------------------------------


@fault("DEC-1")
class LosesTheTokenThatGrows(StepKVCache):
    """A token that finds the buffer full makes it grow, and is not written."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        held = self._buffers
        if held is not None and self._offset == held[0].shape[2]:
            key, value = mx.zeros_like(key), mx.zeros_like(value)
        self.update_and_fetch(key, value)


@fault("DEC-1")
class WritesBesideTheBuffer(StepKVCache):
    """A token that finds the buffer full is written over the newest one."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        held = self._buffers
        if held is not None and self._offset == held[0].shape[2]:
            self._offset -= 1
            self.update_and_fetch(key, value)
            self._offset += 1
        else:
            self.update_and_fetch(key, value)


@fault("DEC-1")
class WritesWithoutCounting(KVCache):
    """write_token does not move offset."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        offset = self._offset
        super().write_token(key, value)
        self._offset = offset


@fault("DEC-1")
class CannotWriteFirst(KVCache):
    """write_token on a new cache raises: there is no buffer yet."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        if self._buffers is None:
            raise RuntimeError(f"{type(self).__name__}: prefill first")
        super().write_token(key, value)


@fault("DEC-1")
class WritesKeysOnly(KVCache):
    """write_token stores zeros as values."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        super().write_token(key, mx.zeros_like(value))


@fault("DEC-1")
class WriteReturnsRows(KVCache):
    """write_token returns what an update would."""

    def write_token(self, key: mx.array, value: mx.array, /) -> Any:
        return self.update_and_fetch(key, value)


@fault("DEC-1", arguments="8")
class WritesIntoAFullWindow(SlidingWindowKVCache):
    """write_token overwrites the newest token once the window is full."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        if self._offset >= self._window:
            self._end -= 1
        super().write_token(key, value)


# -- DEC-2: get_kv -----------------------------------------------------------------------------


@fault("DEC-2")
class OneRowShort(KVCache):
    """get_kv(w) gives w - 1 tokens."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(window)
        if window is None or window == 1 or window > self._offset:
            return keys, values
        return keys[:, :, 1:], values[:, :, 1:]


@fault("DEC-2")
class OldestFirst(KVCache):
    """get_kv(w) gives the first w tokens."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(window)
        count = keys.shape[2]
        keys, values = self.keys_and_values()
        return keys[:, :, :count], values[:, :, :count]


@fault("DEC-2")
class WindowBehindTheNewest(KVCache):
    """get_kv(w) leaves out the newest token."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(window)
        if window is None or window >= self._offset:
            return keys, values
        keys, values = self.keys_and_values()
        return keys[:, :, -window - 1 : -1], values[:, :, -window - 1 : -1]


@fault("DEC-2")
class ReadsSpareRows(KVCache):
    """get_kv() gives whole buffers."""

    def get_kv(self, window: int | None = None) -> Rows:
        if window is None and self._buffers is not None:
            return self._buffers
        return super().get_kv(window)


@fault("DEC-2", arguments="8")
class ReadsTheRing(SlidingWindowKVCache):
    """get_kv gives the rows of a full window in the order of a ring."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(window)
        shift = max(self._offset - self._window, 0)
        return mx.roll(keys, shift, axis=2), mx.roll(values, shift, axis=2)


@fault("DEC-2")
class ReadsOtherValues(KVCache):
    """get_kv(w) gives the values of all tokens."""

    def get_kv(self, window: int | None = None) -> Rows:
        return super().get_kv(window)[0], self.keys_and_values()[1]


@fault("DEC-2")
class WindowLongerThanTheLog(KVCache):
    """get_kv(w) of fewer tokens is padded to w rows."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(window)
        missing = max((window or 0) - keys.shape[2], 0)
        widths = [(0, 0), (0, 0), (missing, 0), (0, 0)]
        return mx.pad(keys, widths), mx.pad(values, widths)


# -- DEC-3: reset ------------------------------------------------------------------------------


@fault("DEC-3")
class ResetKeepsRows(KVCache):
    """reset() changes nothing."""

    def reset(self) -> None:
        pass


@fault("DEC-3")
class ResetKeepsTheOldest(KVCache):
    """reset() keeps the first token."""

    def reset(self) -> None:
        self.trim(max(self._offset - 1, 0))


@fault("DEC-3")
class ResetKeepsItsDtype(KVCache):
    """After reset() rows are cast to the dtype of the earlier request."""

    _was: mx.Dtype | None = None

    def reset(self) -> None:
        if self._buffers is not None:
            self._was = self._buffers[0].dtype
        super().reset()

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        dtype = self._was or keys.dtype
        return super().update_and_fetch(keys.astype(dtype), values.astype(dtype))


@fault("DEC-3", arguments="8")
class ResetKeepsItsOffset(SlidingWindowKVCache):
    """reset() drops the rows, and positions go on."""

    def reset(self) -> None:
        offset = self._offset
        super().reset()
        self._offset = offset


@fault("DEC-3", arguments="8, sinks=2")
class ResetKeepsItsSinks(SlidingWindowKVCache):
    """After reset() the sinks of the earlier request come back once tokens are dropped."""

    def reset(self) -> None:
        sinks = self._sink_rows
        super().reset()
        self._sink_rows = sinks


# -- DEC-4: capacities -------------------------------------------------------------------------


@fault("DEC-4")
class TakesCapacityZero(KVCache):
    """A capacity of 0 is taken for none."""

    def __init__(self, *, capacity: int | None = None) -> None:
        super().__init__(capacity=capacity or None)


@fault("DEC-4")
class TakesNegativeCapacity(KVCache):
    """A capacity below 0 is taken for its absolute value."""

    def __init__(self, *, capacity: int | None = None) -> None:
        super().__init__(capacity=None if capacity is None else abs(capacity))


# A restored cache is as small as its tokens, and has to grow at once.
@fault("DEC-4", also=("REST-2", "REST-3"))
class GrowsByHalf(StepKVCache):
    """A full buffer grows by half its capacity: one of 1 row does not grow at all."""

    def __init__(self, *, capacity: int = 256) -> None:
        super().__init__(capacity=capacity)

    def _capacity(self, end: int) -> int:
        capacity = self._reserved if self._buffers is None else self._buffers[0].shape[2]
        for _ in range(64):
            if capacity >= end:
                return capacity
            capacity += capacity // 2
        raise RuntimeError(f"{type(self).__name__}: no room for {end} tokens")


# -- DEC-6: windows below 1 --------------------------------------------------------------------


# -- DEC-5: a step over several requests -------------------------------------------------------

MODEL = "[0, 1], ['self_attn', None]"


@fault("DEC-5")
class MemoOfAllRequests(KVCache):
    """Reads are remembered by their length, for all caches of the class."""

    _memo: ClassVar[dict[Any, Rows]] = {}

    def __init__(self, *, capacity: int | None = None) -> None:
        super().__init__(capacity=capacity)
        self._memo.clear()

    def get_kv(self, window: int | None = None) -> Rows:
        length = min(self._offset, window or self._offset)
        return self._memo.setdefault((length, self._offset), super().get_kv(window))


class Decodes(CacheLayout):
    """A sound layout; subclasses name the class of its decode steps."""

    made: Any = BatchedDecode

    def batched_decode(self, caches: Any, /, *, pool: Any = None, slots: Any = None) -> Any:
        by_layer = {i: [one[i] for one in caches] for i in self.attention_layer_indices}
        return self.made(
            by_layer,
            self._windows,
            pool=pool,
            slots=slots,
            pool_index_by_layer=self.full_kv_pool_index_by_layer,
        )


class Reads(BatchedDecode):
    """A decode step without any mask; subclasses say what is read and how it is put together."""

    def attend(self, layer: int, queries: Any, keys: Any, values: Any, /, *, scale: float) -> Any:
        caches, window = self._caches[layer], self._windows.get(layer)
        read = [
            self.read(held, keys[row : row + 1], values[row : row + 1], window)
            for row, held in enumerate(caches)
        ]
        width = max(one[0].shape[2] for one in read)
        keys, values = (
            mx.concatenate([self.pad(rows, width - rows.shape[2]) for rows in one])
            for one in zip(*read, strict=True)
        )
        mask = self.mask([one[0].shape[2] for one in read], width)
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)

    def read(self, held: Any, key: mx.array, value: mx.array, window: int | None) -> Rows:
        held.write_token(key, value)
        rows: Rows = held.get_kv(window)
        return rows

    def pad(self, rows: mx.array, count: int) -> mx.array:
        return mx.pad(rows, [(0, 0), (0, 0), (0, count), (0, 0)])

    def mask(self, lengths: list[int], width: int) -> Any:
        return (mx.arange(width) < mx.array(lengths)[:, None])[:, None, None]


@fault("DEC-5", arguments=MODEL)
class ShowsItsPadding(Decodes):
    """The padding is not masked."""

    class Step(Reads):
        def mask(self, lengths: list[int], width: int) -> Any:
            return None

    made = Step


@fault("DEC-5", arguments=MODEL)
class PadsAtTheLeft(Decodes):
    """Rows are padded at the left, and the mask hides the right."""

    class Step(Reads):
        def pad(self, rows: mx.array, count: int) -> mx.array:
            return mx.pad(rows, [(0, 0), (0, 0), (count, 0), (0, 0)])

    made = Step


@fault("DEC-5", arguments=MODEL)
class ReadsBeforeItWrites(Decodes):
    """The new token is not among those that are read."""

    class Step(Reads):
        def read(self, held: Any, key: mx.array, value: mx.array, window: int | None) -> Rows:
            rows: Rows = held.get_kv(window)
            held.write_token(key, value)
            return rows

    made = Step


@fault("DEC-5", arguments=MODEL)
class ForgetsItsWindows(Decodes):
    """Every layer reads all that its cache has."""

    class Step(Reads):
        def read(self, held: Any, key: mx.array, value: mx.array, window: int | None) -> Rows:
            return super().read(held, key, value, None)

    made = Step


@fault("DEC-5", arguments=MODEL)
class OnePositionForAll(Decodes):
    """All requests stand at the offset of the longest one."""

    class Step(BatchedDecode):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.offsets = mx.full(self.offsets.shape, self.offsets.max(), mx.int32)

    made = Step


@fault("DEC-5", arguments=MODEL)
class OneCacheForAll(Decodes):
    """The caches of the first request serve all of them."""

    class Step(Reads):
        def read(self, held: Any, key: mx.array, value: mx.array, window: int | None) -> Rows:
            held = next(row[0] for row in self._caches.values() if held in row)
            return super().read(held, key, value, window)

    made = Step


# -- DEC-6: senseless windows ------------------------------------------------------------------


@fault("DEC-6")
class TakesAnyWindow(KVCache):
    """get_kv(0) gives all tokens, and get_kv(-1) all but the first."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = self.keys_and_values()
        first = -(window or 0)
        return keys[:, :, first:], values[:, :, first:]


@fault("DEC-6")
class NoWindowIsAllTokens(KVCache):
    """get_kv(0) gives all tokens."""

    def get_kv(self, window: int | None = None) -> Rows:
        return super().get_kv(window or None)


@fault("DEC-6")
class WindowBelowOneIsEmpty(KVCache):
    """get_kv of a window below 1 gives no tokens."""

    def get_kv(self, window: int | None = None) -> Rows:
        keys, values = super().get_kv(None if window is None else max(window, 1))
        if window is not None and window < 1:
            return keys[:, :, :0], values[:, :, :0]
        return keys, values
