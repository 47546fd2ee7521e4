"""Faults of the pool contract, and of copying where a pool is shared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from reference_impl import KVCache, KVPool, PoolBackedKVCache
from tests.faults.bases import Rows
from tests.faults.gallery import fault

SIZES = "24, 2, 3, 8, 12"


class Backs(KVPool):
    """A sound pool; subclasses name the class of the caches that it backs."""

    backed: Any = PoolBackedKVCache

    def backed_cache(self, layer: int, slots: Any, prefix_len: int, /) -> Any:
        return self.backed(self, layer, slots, prefix_len)


# -- POOL-1: what was written last -------------------------------------------------------------


@fault("POOL-1", arguments=SIZES)
class ReadsInSlotOrder(KVPool):
    """get_kv sorts the slots."""

    def get_kv(self, layer: int, slots: Any, /) -> Rows:
        return super().get_kv(layer, mx.sort(slots))


@fault("POOL-1", arguments=SIZES)
class WritesEveryLayer(KVPool):
    """set_kv writes to all layers."""

    def set_kv(self, layer: int, slots: Any, keys: mx.array, values: mx.array, /) -> None:
        for each in range(self.layers):
            super().set_kv(each, slots, keys, values)


@fault("POOL-1", arguments=SIZES)
class WritesARange(KVPool):
    """set_kv takes slots for a range from the first one on."""

    def set_kv(self, layer: int, slots: Any, keys: mx.array, values: mx.array, /) -> None:
        if slots.size:
            first = min(int(slots[0]), self.slots - slots.size)
            slots = mx.arange(first, first + slots.size)
        super().set_kv(layer, slots, keys, values)


# -- POOL-2: wrong slots -----------------------------------------------------------------------


@fault("POOL-2", arguments=SIZES)
class CountsFromTheEnd(KVPool):
    """A negative slot is counted from the last one, as indexing does."""

    def _checked_slots(self, slots: Any, *, minimum: int) -> list[int]:
        slots = [slot % self.slots if slot < 0 else slot for slot in mx.array(slots).tolist()]
        return super()._checked_slots(slots, minimum=minimum)


@fault("POOL-2", arguments=SIZES)
class StoresInThePadding(KVPool):
    """A token may lie in slot 0."""

    def _checked_slots(self, slots: Any, *, minimum: int) -> list[int]:
        return super()._checked_slots(slots, minimum=0)


@fault("POOL-2", arguments=SIZES)
class ClampsItsSlots(KVPool):
    """A slot past the last one is the last one."""

    def _checked_slots(self, slots: Any, *, minimum: int) -> list[int]:
        slots = [min(slot, self.slots - 1) for slot in mx.array(slots).tolist()]
        return super()._checked_slots(slots, minimum=minimum)


@fault("POOL-2", arguments=SIZES)
class WritesUpToTheWrongSlot(KVPool):
    """set_kv writes slot by slot, and finds the wrong one on the way."""

    def set_kv(self, layer: int, slots: Any, keys: mx.array, values: mx.array, /) -> None:
        for index, slot in enumerate(mx.array(slots).tolist()):
            one = slice(index, index + 1)
            super().set_kv(layer, [slot], keys[one], values[one])


# -- POOL-3: as fed ----------------------------------------------------------------------------


@fault("POOL-3", arguments=SIZES)
class ServesTheLastChunkOnly(Backs):
    """A second update gathers the prefix anew and loses the first chunk (as sglang's does)."""

    class Cache(PoolBackedKVCache):
        def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
            moved = self.offset + keys.shape[2]
            self._own = None
            result = super().update_and_fetch(keys, values)
            self._past = moved
            return result

        @property
        def offset(self) -> int:
            return int(getattr(self, "_past", len(self._prefix)))

    backed = Cache


@fault("POOL-3", arguments=SIZES)
class PrefixInSlotOrder(Backs):
    """The prefix is read in the order of the slots, not of the tokens."""

    class Cache(PoolBackedKVCache):
        def __init__(self, pool: Any, layer: int, slots: Any, prefix_len: int) -> None:
            super().__init__(pool, layer, slots, prefix_len)
            self._prefix.sort()

    backed = Cache


@fault("POOL-3", arguments=SIZES)
class HeadsTakenForTokens(Backs):
    """Rows (S, H, D) are reshaped to (H, S, D), not transposed."""

    class Cache(PoolBackedKVCache):
        def _loaded(self, key_dtype: mx.Dtype, value_dtype: mx.Dtype) -> KVCache:
            own = KVCache()
            if self._prefix:
                rows = self._pool.get_kv(self._layer, self._prefix)
                own.update_and_fetch(
                    *(r.reshape(1, r.shape[1], r.shape[0], r.shape[2]) for r in rows)
                )
            return own

    backed = Cache


@fault("POOL-3", arguments=SIZES)
class MaskOfTheNewTokens(Backs):
    """Its masks leave the prefix out."""

    class Cache(PoolBackedKVCache):
        def make_mask(self, N: int, /, **options: Any) -> Any:
            return KVCache().make_mask(N, **options)

    backed = Cache


# -- POOL-4: apart from the pool ---------------------------------------------------------------


@fault("POOL-4", arguments=SIZES)
class ReadsThePoolEveryTime(Backs):
    """It keeps the new tokens only, and reads the prefix anew at each update."""

    class Cache(PoolBackedKVCache):
        def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
            super().update_and_fetch(keys, values)
            prefix = self._loaded(keys.dtype, values.dtype)
            kept = (rows[:, :, len(self._prefix) :] for rows in self._own.keys_and_values())
            return prefix.update_and_fetch(*kept)

    backed = Cache


@fault("POOL-4", arguments=SIZES)
class WritesThrough(Backs):
    """New tokens are written to the slots that follow those of the prefix."""

    class Cache(PoolBackedKVCache):
        _free: Any = ()

        def __init__(self, pool: Any, layer: int, slots: Any, prefix_len: int) -> None:
            super().__init__(pool, layer, slots, prefix_len)
            self._free = mx.array(slots).tolist()[prefix_len:]

        def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
            count = min(keys.shape[2], len(self._free))
            rows = (rows[0, :, :count].transpose(1, 0, 2) for rows in (keys, values))
            self._pool.set_kv(self._layer, self._free[:count], *rows)
            self._free = self._free[count:]
            return super().update_and_fetch(keys, values)

    backed = Cache


# -- POOL-5: dtype and length ------------------------------------------------------------------


@fault("POOL-5", arguments=SIZES)
class PromotedByThePool(Backs):
    """Rows of the pool and new ones are joined in the wider of the two dtypes."""

    class Cache(PoolBackedKVCache):
        def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
            wider = mx.result_type(keys, mx.zeros(1, self._pool.dtype))
            return super().update_and_fetch(keys.astype(wider), values.astype(wider))

    backed = Cache


@fault("POOL-5", arguments=SIZES)
class TakesAShorterPrefix(Backs):
    """Where there are fewer slots than prefix_len, it begins at their number."""

    class Cache(PoolBackedKVCache):
        def __init__(self, pool: Any, layer: int, slots: Any, prefix_len: int) -> None:
            super().__init__(pool, layer, slots, min(len(slots), prefix_len))

    backed = Cache


# -- COPY-2: the pool is shared ----------------------------------------------------------------


@fault("COPY-2", arguments=SIZES)
class CopiesThePool(Backs):
    """deepcopy copies all that it reaches."""

    class Cache(PoolBackedKVCache):
        def __deepcopy__(self, memo: Any) -> Any:
            made = type(self).__new__(type(self))
            made.__dict__.update(copy.deepcopy(self.__dict__, memo))
            return made

    backed = Cache


@fault("COPY-2", arguments=SIZES)
class CopyFailsOnThePool(Backs):
    """deepcopy reaches the dtype of the pool, which cannot be copied (as sglang's does)."""

    class Cache(PoolBackedKVCache):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot pickle 'Dtype' object")

    backed = Cache


@fault("COPY-2", arguments=SIZES)
class CopyForgetsThePrefix(Backs):
    """A copy is made of what was appended; before the first update that is nothing."""

    class Cache(PoolBackedKVCache):
        def __deepcopy__(self, memo: Any) -> Any:
            made: Sequence[int] = [] if self._own is None else self._prefix
            copied = type(self)(self._pool, self._layer, made, len(made))
            copied._own = copy.deepcopy(self._own, memo)
            return copied

    backed = Cache
