"""mlx-lm's models with latent attention (MLA)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Answer, Consumer, Finding, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


LATENT = "models: deepseek_v3, minicpm3, longcat_flash (Attention.__call__)"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    yield from generate.single(traits, report)
    if traits.quantized:
        told = "returns quantised triples, which `k_pe.swapaxes` and the like do not take"
        yield Finding(Answer.NO, told, "QNT-1")
    elif all(keys == values for keys, values in traits.head_dims):
        told = "takes only values as wide as the keys; the latent and the RoPE part differ"
        yield Finding(Answer.NO, told, "UPD-5")


CONSUMER = Consumer(
    name="mlx-lm:latent-attention",
    about="MLA models keep a latent as keys and its RoPE part as values: other widths, read as "
    "plain arrays.",
    kinds=("attention",),
    needs=(*generate.NEEDS, Need(("UPD-5",), LATENT, "appends keys and values of other widths")),
    members=generate.MEMBERS,
    asks=_asks,
)
