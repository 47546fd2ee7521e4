"""Faults of the opaque contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from reference_impl import RotatedKVCache, RotatedRows
from reference_impl.opaque import _rotated
from tests.faults.gallery import fault

# -- OPQ-1: a handle is no rows ----------------------------------------------------------------


@fault("OPQ-1")
class AnnouncesBits(RotatedKVCache):
    """It has bits, as a cache that returns triples has."""

    bits = 8
    group_size = 32


@dataclass(frozen=True)
class Unpacks(RotatedRows):
    """A handle that can be unpacked."""

    def __iter__(self) -> Any:
        return iter((self.rotated, self.rotated, self.rotated))


@fault("OPQ-1")
class HandleUnpacksAsTriple(RotatedKVCache):
    """Its handles can be unpacked as (packed, scales, biases)."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        return Unpacks(held[0].rotated), Unpacks(held[1].rotated)


@dataclass(frozen=True)
class Converts(RotatedRows):
    """A handle that mlx takes for an array."""

    def __mlx_array__(self) -> mx.array:
        return self.rotated


@fault("OPQ-1")
class HandleConverts(RotatedKVCache):
    """Its handles become arrays wherever mlx wants one."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        return Converts(held[0].rotated), Converts(held[1].rotated)


# -- OPQ-2: its own attention ------------------------------------------------------------------


@fault("OPQ-2")
class ForgetsToRotateQueries(RotatedKVCache):
    """Queries meet rotated keys as they are."""

    def attend(self, queries: Any, keys: Any, values: Any, /, **options: Any) -> mx.array:
        rotation = mx.hadamard_transform(mx.eye(queries.shape[3])).astype(queries.dtype)
        return super().attend(queries @ rotation.T, keys, values, **options)


@fault("OPQ-2")
class IgnoresTheScale(RotatedKVCache):
    """attend divides by the root of the head dim once more."""

    def attend(self, queries: Any, keys: Any, values: Any, /, **options: Any) -> mx.array:
        options["scale"] *= queries.shape[3] ** -0.5
        return super().attend(queries, keys, values, **options)


@fault("OPQ-2")
class GroupsHeadsInTurn(RotatedKVCache):
    """Query head h attends to key head h mod H, instead of h // groups."""

    def attend(self, queries: Any, keys: Any, values: Any, /, **options: Any) -> mx.array:
        groups = queries.shape[1] // keys.shape[1]
        repeated = [
            RotatedRows(mx.concatenate([rows.rotated] * groups, axis=1)) for rows in (keys, values)
        ]
        return super().attend(queries, *repeated, **options)


@fault("OPQ-2")
class CausalFromTheLeft(RotatedKVCache):
    """attend takes "causal" as aligned at the upper left."""

    def attend(self, queries: Any, keys: Any, values: Any, /, **options: Any) -> mx.array:
        if isinstance(options.get("mask"), str):
            options["mask"] = mx.arange(keys.shape[2]) <= mx.arange(queries.shape[2])[:, None]
        return super().attend(queries, keys, values, **options)


# -- OPQ-3: another basis only behind a handle -------------------------------------------------


@fault("OPQ-3", also=("UPD-1",))
class ReturnsRotatedArrays(RotatedKVCache):
    """It returns the rotated rows as plain arrays."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        return held[0].rotated, held[1].rotated


@fault("OPQ-3", also=("UPD-1",))
class ReturnsRotatedValues(RotatedKVCache):
    """Keys are handed out as they came, values as plain arrays in the rotated basis."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        rotation = mx.hadamard_transform(mx.eye(keys.shape[3])).astype(keys.dtype)
        return held[0].rotated @ rotation.T, _rotated(values)


# -- OPQ-4: the shape of a handle --------------------------------------------------------------


@dataclass(frozen=True)
class Packed(RotatedRows):
    """A handle whose shape tells half the head dim."""

    @property
    def shape(self) -> tuple[int, ...]:
        batch, heads, length, dim = self.rotated.shape
        return batch, heads, length, dim // 2


@fault("OPQ-4")
class ShapeOfPackedRows(RotatedKVCache):
    """The shape of a handle counts packed elements for the head dim."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        return Packed(held[0].rotated), Packed(held[1].rotated)


class Shapeless:
    """A handle without a shape."""

    def __init__(self, rows: RotatedRows) -> None:
        self.rows = rows


@fault("OPQ-4", also=("UPD-1",))
class HandleWithoutShape(RotatedKVCache):
    """Its handles have no shape."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        held = super().update_and_fetch(keys, values)
        return Shapeless(held[0]), Shapeless(held[1])

    def attend(self, queries: Any, keys: Any, values: Any, /, **options: Any) -> mx.array:
        return super().attend(queries, keys.rows, values.rows, **options)
