"""What a checker knows after `is_data_free` and `is_storage_backed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import mlx.core as mx
from typing_extensions import assert_type

from kvproto import (
    AttentionCache,
    DataFreeCache,
    HasOffset,
    QuantizedAttentionCache,
    StorageBackedCache,
    has_offset,
    is_data_free,
    is_storage_backed,
)

Layer: TypeAlias = AttentionCache | DataFreeCache


def either(cache: Layer, keys: mx.array) -> None:
    if is_data_free(cache):
        assert_type(cache, DataFreeCache)
        assert_type(cache.offset, int)
        assert_type(cache.state, "tuple[()]")
        print(cache.keys)  # error[attr-defined]
    else:
        assert_type(cache, AttentionCache)  # error[]: ty
        assert_type(cache.update_and_fetch(keys, keys), "tuple[mx.array, mx.array]")
        cache.trim(1)  # error[attr-defined]


def early_return(cache: Layer, keys: mx.array) -> mx.array:
    if is_data_free(cache):
        raise TypeError("a layer without storage")
    fetched, _ = cache.update_and_fetch(keys, keys)
    return fetched


def storing(cache: Layer, keys: mx.array) -> None:
    if is_storage_backed(cache):
        assert_type(cache, AttentionCache)  # error[]: ty
        cache.update_and_fetch(keys, keys)


def unknown(cache: object, keys: mx.array) -> None:
    cache.update_and_fetch(keys, keys)  # error[attr-defined]
    if is_storage_backed(cache):
        assert_type(cache, StorageBackedCache)
        cache.update_and_fetch(keys, keys)
    if is_data_free(cache):
        assert_type(cache, DataFreeCache)
        assert_type(cache.offset, int)


def with_some_position(cache: object) -> None:
    if has_offset(cache):
        assert_type(cache, HasOffset[int | mx.array])


def positioned(cache: HasOffset[int], keys: mx.array) -> int:
    """Narrowing keeps what was known: the position, and now the update."""
    if is_storage_backed(cache):
        cache.update_and_fetch(keys, keys)
        return cache.offset
    return cache.offset


def filtered(caches: Sequence[Layer]) -> list[AttentionCache]:
    return [cache for cache in caches if not is_data_free(cache)]


def unreachable(cache: DataFreeCache, keys: mx.array) -> None:
    cache.update_and_fetch(keys, keys)  # error[arg-type]
    print("never printed")  # error[unreachable]: mypy


def unreachable_after_narrowing(cache: Layer, keys: mx.array) -> None:
    if is_data_free(cache):
        cache.update_and_fetch(keys, keys)  # error[arg-type]
        print("never printed")  # error[unreachable]: mypy


def two_kinds(cache: QuantizedAttentionCache | DataFreeCache) -> int:
    if is_data_free(cache):
        return cache.offset
    return cache.bits
