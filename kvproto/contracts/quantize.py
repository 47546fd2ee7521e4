"""Quantised caches: affine triples, and conversion to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx

AffineTriple: TypeAlias = "tuple[mx.array, mx.array, mx.array]"
"""Packed integers, scales and biases, as ``mx.quantize`` gives them."""


class QuantizedDispatch(Protocol):
    """What consumers dispatch on: the mere presence of ``bits`` means affine triples."""

    @property
    def bits(self) -> int: ...

    @property
    def group_size(self) -> int: ...


class ToQuantized(Protocol):
    """A cache that can be converted to a quantised one."""

    def to_quantized(self, *, group_size: int = ..., bits: int = ...) -> Any: ...


SDPA = "mlx-lm: models/base.scaled_dot_product_attention (hasattr(cache, 'bits'))"
CONVERT = "mlx-lm: generate.maybe_quantize_kv_cache"

CONTRACT = REGISTRY.register(
    "quantize",
    "Quantised caches",
    "`bits` is there if and only if update_and_fetch returns (packed, scales, biases) triples.",
    (
        Clause(
            "QNT-1",
            Level.MUST,
            "have bits if and only if update_and_fetch returns (packed, scales, biases) triples, "
            "and then group_size, too.",
            "Consumers pick the attention kernel by hasattr(cache, 'bits').",
            (SDPA,),
            ("jundot/omlx#2381", "ml-explore/mlx-lm#1082"),
        ),
        Clause(
            "QNT-2",
            Level.MUST,
            "accept every head dim and dtype that mx.quantize accepts at its bits and group size.",
            "The first append of a model with another head dim fails half-way.",
            (CONVERT,),
        ),
        Clause(
            "QNT-3",
            Level.MUST,
            "hold exactly what mx.quantize gives for the same rows, for any chunking.",
            "Affine quantisation is row-wise, so any difference is a row that was mixed up, "
            "quantised twice, or stored in another basis.",
            (SDPA,),
            ("Blaizzy/mlx-vlm#973", "Blaizzy/mlx-vlm#1310"),
        ),
        Clause(
            "QNT-4",
            Level.MUST,
            "give the attention of UPD-14 over its dequantised rows, with every kind of mask and "
            "grouped heads.",
            "Quantised attention is wrong where plain attention is right.",
            (SDPA,),
            ("ml-explore/mlx-lm#121", "ml-explore/mlx-lm#1467"),
        ),
        Clause(
            "QNT-5",
            Level.MUST,
            "give, by to_quantized(group_size=, bits=), a cache at the same offset that holds the "
            "same tokens, and leave the source as it was.",
            "Generation goes on with the converted cache from the next token on.",
            (CONVERT,),
            ("ml-explore/mlx-lm#1573", "ml-explore/mlx-lm#495"),
        ),
        Clause(
            "QNT-6",
            Level.SHOULD,
            "keep the keys' and the values' own dtypes in scales and biases.",
            "Values that are float32 by design come back in the keys' float16.",
            (),
            ("ml-explore/mlx-lm#1550",),
        ),
        Clause(
            "QNT-7",
            Level.SHOULD,
            "refuse a head dim that mx.quantize refuses, before anything changes.",
            "The cache is left with an offset that has no rows behind it.",
        ),
    ),
)
