"""Faults of the quantize contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import KVCache, QuantizedKVCache
from tests.faults.gallery import fault

# -- QNT-1: bits if and only if triples --------------------------------------------------------


@fault("QNT-1")
class BitsComeWithTokens(KVCache):
    """It returns plain arrays, and has bits from the first token on."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        self.bits = 8
        return super().update_and_fetch(keys, values)


# -- QNT-2: every head dim and dtype -----------------------------------------------------------


@fault("QNT-2")
class RefusesWideHeads(QuantizedKVCache):
    """It refuses head dims above 128."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        if max(keys.shape[3], values.shape[3]) > 128:
            raise ValueError(f"{type(self).__name__}: head dim must be at most 128")
        return super().update_and_fetch(keys, values)


@fault("QNT-2")
class RefusesBrainFloat(QuantizedKVCache):
    """It refuses bfloat16."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        if keys.dtype == mx.bfloat16:
            raise TypeError(f"{type(self).__name__}: no bfloat16")
        return super().update_and_fetch(keys, values)


@fault("QNT-2")
class RefusesUnequalHeadDims(QuantizedKVCache):
    """It refuses values of another head dim than the keys."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        if keys.shape[3] != values.shape[3]:
            raise ValueError(f"{type(self).__name__}: head dims must be equal")
        return super().update_and_fetch(keys, values)


# -- QNT-5: conversion -------------------------------------------------------------------------


@fault("QNT-5")
class ConversionLosesTheNewest(KVCache):
    """The converted cache has all tokens but the newest."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        quantized = super().to_quantized(group_size=group_size, bits=bits)
        quantized.trim(1)
        return quantized


@fault("QNT-5")
class ConversionLosesOffset(KVCache):
    """The converted cache says that its offset is 0, though it goes on after all tokens."""

    class Quantized(QuantizedKVCache):
        """Counts its own tokens only."""

        lost = 0

        @property
        def offset(self) -> int:
            return self._offset - self.lost

        @offset.setter
        def offset(self, offset: int) -> None:
            QuantizedKVCache.offset.fset(self, offset)

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        quantized = self.Quantized(group_size, bits)
        if self._buffers is not None:
            quantized.update_and_fetch(*self.keys_and_values())
        quantized.lost = self._offset
        return quantized


@fault("QNT-5")
class ConvertsInPlace(KVCache):
    """Conversion frees the plain rows: the source is empty afterwards."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        quantized = super().to_quantized(group_size=group_size, bits=bits)
        self.reset()
        return quantized


@fault("QNT-5")
class ConvertsToItsOwnBits(KVCache):
    """Conversion ignores bits, and gives 8."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        return super().to_quantized(group_size=group_size)


@fault("QNT-5")
class ConvertsSpareRows(KVCache):
    """Conversion takes whole buffers, spare rows included, for tokens."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        quantized = QuantizedKVCache(group_size, bits)
        if self._buffers is not None:
            quantized.update_and_fetch(*self._buffers)
        return quantized


@fault("QNT-5")
class ConvertsKeysTwice(KVCache):
    """The converted cache has keys in place of values, where their widths allow it."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        quantized = QuantizedKVCache(group_size, bits)
        if self._buffers is not None:
            keys, values = self.keys_and_values()
            copies = -(-values.shape[3] // keys.shape[3])
            values = mx.tile(keys, (1, 1, 1, copies))[..., : values.shape[3]]
            quantized.update_and_fetch(keys, values)
        return quantized


@fault("QNT-5")
class ConversionSwallowsBits(KVCache):
    """Conversion gives 4 bits and group_size 64 only, and raises for the rest."""

    def to_quantized(self, *, group_size: int = 64, bits: int = 4) -> QuantizedKVCache:
        if (group_size, bits) != (64, 4):
            raise ValueError(f"{type(self).__name__}: 4 bits in groups of 64 only")
        return super().to_quantized(group_size=group_size, bits=bits)


# -- QNT-6: dtypes -----------------------------------------------------------------------------


@fault("QNT-6")
class ScalesInTheDtypeOfKeys(QuantizedKVCache):
    """Values are cast to the dtype of the keys before they are quantised."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        return super().update_and_fetch(keys, values.astype(keys.dtype))


# -- QNT-7: head dims that do not fit ----------------------------------------------------------


@fault("QNT-7")
class MovesBeforeItQuantizes(QuantizedKVCache):
    """offset moves before a head dim is refused."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        if keys.shape[3] % self._group_size:
            self._offset += keys.shape[2]
        return super().update_and_fetch(keys, values)


@fault("QNT-7")
class CutsTheHeadDim(QuantizedKVCache):
    """Elements that do not fill a group are dropped, or zeros added where there is no group."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        rest = keys.shape[3] % self._group_size
        if rest and keys.shape[3] > self._group_size:
            keys = keys[..., :-rest]
        elif rest:
            keys = mx.pad(keys, [(0, 0), (0, 0), (0, 0), (0, self._group_size - rest)])
        return super().update_and_fetch(keys, values)


# -- QNT-3: what mx.quantize gives; QNT-4: attention ------------------------------------------


# The error is beyond the rounding of one quantisation.
@fault("QNT-3", also=("UPD-14",))
class QuantizesTwice(QuantizedKVCache):
    """Rows are dequantised and quantised again with other bits before they are stored."""

    def _quantized(self, rows: mx.array) -> Any:
        options = {"group_size": self._group_size, "bits": 6}
        return super()._quantized(mx.dequantize(*mx.quantize(rows, **options), **options))


# NaN times a weight of zero is NaN in plain attention, too.
@fault("QNT-4", also=("UPD-14",))
class HiddenRowsAreNaN(QuantizedKVCache):
    """Spare rows are returned, too; the mask hides them, but their scales are not numbers."""

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        mask = super().make_mask(N, return_array=True, window_size=window_size)
        mask = mx.ones((N, self._offset + N), mx.bool_) if mask is None else mask
        return mx.pad(mask, [(0, 0), (0, 2)])

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        widths = [(0, 0), (0, 0), (0, 2), (0, 0)]
        return tuple(
            (
                mx.pad(packed, widths),
                mx.pad(scales, widths, constant_values=mx.nan),
                mx.pad(biases, widths),
            )
            for packed, scales, biases in super().update_and_fetch(keys, values)
        )
