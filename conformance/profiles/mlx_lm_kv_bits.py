"""mlx-lm's ``kv_bits``: caches are quantised while they are in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Answer, Consumer, Finding, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


QUANTIZE = "maybe_quantize_kv_cache"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    yield from generate.single(traits, report)
    if not traits.quantized and "to_quantized" not in traits:
        told = "has no to_quantized: it is left as it is, and saves no memory"
        yield Finding(Answer.DEGRADED, told)
    refused = [r for r in report.results if r.clause == "REF-1" and "to_quantized" in r.message]
    for result in refused:
        told = f"REF-1: {result.message}; it is called because it is there"
        yield Finding(Answer.NO, told, "REF-1")


CONSUMER = Consumer(
    name="mlx-lm:kv-bits",
    about="generate_step(kv_bits=...): after each pass, every layer cache that has to_quantized "
    "and holds quantized_kv_start tokens is replaced by what it returns.",
    kinds=("attention", "recurrent"),
    needs=(
        *generate.NEEDS,
        Need(("QNT-5",), QUANTIZE, "goes on with the quantised cache in its place"),
    ),
    members=generate.MEMBERS,
    asks=_asks,
    issues=("ml-explore/mlx-lm#1573",),
)
