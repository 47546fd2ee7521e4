"""sglang's MLX backend: one pass over requests of different lengths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


SHIM = "model_runner: _decode_with_batched_attention (one data-free cache a layer)"
ATTENTION = "MLXAttentionWrapper._batched_decode"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    if traits.batched:
        yield Finding(Answer.NO, "is constructed as a batch; there each request has its own cache")


CONSUMER = Consumer(
    name="sglang:batched-decode",
    about="The model runs once for all requests with data-free caches for the mask, while the "
    "attention layers write one token to each request's own cache and read it back.",
    kinds=("attention", "data-free"),
    needs=(
        Need(("FREE-1", "FREE-2", "FREE-3", "FREE-4", "FREE-5"), SHIM, "stands in for the model"),
        Need(("MASK-1", "MASK-4", "MASK-6"), SHIM, "makes the mask of the model body"),
        Need(("POS-1", "POS-2", "POS-3"), "BatchedDecodeContext.from_decode", "reads each offset"),
        Need(
            ("DEC-1",),
            ATTENTION,
            "writes the new token of every request",
            unsure="a prefill comes before the first token that is written",
        ),
        Need(("DEC-2",), ATTENTION, "reads keys and values in temporal order"),
        Need(("DEC-5",), ATTENTION, "attends to all requests in one pass"),
    ),
    members=(
        Member("offset", "BatchedDecodeContext.from_decode", "it raises AttributeError"),
        Member("make_mask", SHIM, "plain causal masks stand in", True, ("data-free",)),
        Member("write_token", ATTENTION, "it raises AttributeError", kinds=("attention",)),
        Member("get_kv", ATTENTION, "it raises AttributeError", kinds=("attention",)),
    ),
    asks=_asks,
)
