"""What a checker must reject."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from kvproto import (
    AffineTriple,
    AttentionCache,
    DataFreeCache,
    ExposesBuffers,
    HasOffset,
    HasState,
    MakesAttentionMask,
    QuantizedAttentionCache,
    Restorable,
    SettableOffset,
    StorageBackedCache,
    Trimmable,
    UpdatesAndFetches,
)
from reference_impl import BatchKVCache, KVCache, OffsetCache, QuantizedKVCache


def store(cache: StorageBackedCache) -> None: ...
def attend(cache: AttentionCache) -> None: ...
def make(factory: Callable[[], AttentionCache]) -> None: ...


# A data-free cache is no storing one, although its update_and_fetch returns Never.
def pass_on(shim: DataFreeCache) -> None:
    store(shim)  # error[arg-type]
    attend(shim)  # error[arg-type]


store(OffsetCache())  # error[arg-type]
attend(OffsetCache())  # error[arg-type]
make(OffsetCache)  # error[arg-type]

# Kinds are not each other.
attend(QuantizedKVCache())  # error[arg-type]
attend(BatchKVCache([0]))  # error[arg-type]
shim_of_storage: DataFreeCache = KVCache()  # error[assignment]
quantized: QuantizedAttentionCache = KVCache()  # error[assignment]

# One position or several.
one: HasOffset[int] = BatchKVCache([0])  # error[assignment]
several: HasOffset[mx.array] = KVCache()  # error[assignment]


class ReadOnly:
    @property
    def offset(self) -> int:
        return 0

    @property
    def state(self) -> tuple[mx.array, ...]:
        return ()

    @property
    def keys(self) -> mx.array:
        return mx.array(0)

    @property
    def values(self) -> mx.array:
        return mx.array(0)


# Reading is one capability and setting another.
settable: SettableOffset[int] = ReadOnly()  # error[assignment]
restorable: Restorable = ReadOnly()  # error[assignment]
buffers: ExposesBuffers[mx.array] = ReadOnly()  # error[assignment]


class BoolOffset:
    offset: bool = False


# What can be set is invariant: somebody would write an int.
bool_offset: SettableOffset[int] = BoolOffset()  # error[assignment]: mypy ty pyrefly


def move(cache: HasOffset[int]) -> None:
    cache.offset = 0  # error[misc]


class NoWindow:
    def make_mask(self, N: int, return_array: bool = False) -> mx.array | None: ...


class RequiredKeyword:
    def make_mask(
        self, N: int, *, window_size: int | None, return_array: bool = False
    ) -> mx.array | None: ...


class AnyString:
    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None: ...


no_window: MakesAttentionMask = NoWindow()  # error[assignment]
required: MakesAttentionMask = RequiredKeyword()  # error[assignment]
any_string: MakesAttentionMask = AnyString()  # error[assignment]


class Lists:
    def update_and_fetch(self, keys: mx.array, values: mx.array) -> list[mx.array]: ...


class ThreeArguments:
    def update_and_fetch(
        self, keys: mx.array, values: mx.array, layer: int
    ) -> tuple[mx.array, mx.array]: ...


class KeysOnly:
    def update_and_fetch(self, keys: mx.array) -> mx.array: ...


lists: UpdatesAndFetches[mx.array] = Lists()  # error[assignment]
three: UpdatesAndFetches[mx.array] = ThreeArguments()  # error[assignment]
keys_only: StorageBackedCache = KeysOnly()  # error[assignment]
plain: UpdatesAndFetches[AffineTriple] = KVCache()  # error[assignment]


class TrimsSilently:
    def is_trimmable(self) -> bool: ...
    def trim(self, n: int) -> None: ...


silently: Trimmable = TrimsSilently()  # error[assignment]


def evaluate_list(caches: list[HasState]) -> None: ...


# A list is invariant; kvproto.PromptCache is a Sequence.
caches = [KVCache(), KVCache()]
evaluate_list(caches)  # error[arg-type]
