"""Faults of clause UPD-16 of the update contract: keys and values in different dtypes."""

from __future__ import annotations

import mlx.core as mx

from reference_impl import KVCache
from tests.faults.bases import Rows
from tests.faults.gallery import fault


@fault("UPD-16")
class PromotesToOneDtype(KVCache):
    """Keys and values of different dtypes are both cast to the wider one."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.dtype != values.dtype:
            keys, values = keys.astype(mx.float32), values.astype(mx.float32)
        return super().update_and_fetch(keys, values)


@fault("UPD-16")
class KeysInTheDtypeOfTheirValues(KVCache):
    """It casts keys to the dtype of the values."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return super().update_and_fetch(keys.astype(values.dtype), values)
