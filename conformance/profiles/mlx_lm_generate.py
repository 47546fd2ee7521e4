"""mlx-lm's ``generate_step``: prefill in chunks, then one token at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report

STEP = "generate_step: _model_call"
MODEL = "models: Attention.__call__"
MASK = "models.base: create_attention_mask"

NEEDS = (
    Need(("POS-1", "POS-2", "POS-3"), MODEL, "reads offset before the update, for RoPE"),
    Need(
        ("MASK-1", "MASK-2", "MASK-3", "MASK-4", "MASK-7", "MASK-8"),
        MASK,
        "asks one layer of a kind for the mask of all, before the update",
    ),
    Need(("MASK-5",), MASK, "models such as gemma2 ask for an array and index it"),
    Need(("UPD-1", "UPD-2", "UPD-14"), MODEL, "attends to what update_and_fetch returns"),
    Need(("UPD-3", "UPD-4"), STEP, "feeds a prompt in chunks of prefill_step_size"),
    Need(("STATE-1", "STATE-2"), STEP, "evaluates every state after each chunk"),
    Need(("STATE-5",), MASK, "asks `if cache`: a falsy cache gets no mask of its own"),
    Need(("QNT-1", "QNT-4"), "models.base: scaled_dot_product_attention", "dispatches on bits"),
    Need(("REC-1", "REC-3"), "models: recurrent layers", "reads and assigns slots"),
)

MEMBERS = (
    Member("offset", MODEL, "RoPE has no position", kinds=("attention",)),
    Member("state", STEP, "a prompt of two or more tokens raises AttributeError"),
    Member("lengths", "models: recurrent layers", "reading it raises", kinds=("recurrent",)),
    Member("advance", "models: recurrent layers", "the call raises", kinds=("recurrent",)),
)


def single(traits: Traits, report: Report) -> Iterable[Finding]:
    """Findings that hold wherever one sequence goes through the layers of a model."""
    if traits.batched:
        yield Finding(Answer.NO, "is constructed as a batch, and offset is an array")
    if traits.opaque:
        told = "returns handles, over which only its own attend attends; models call mx.fast"
        yield Finding(Answer.NO, told, "OPQ-1")
    builds_own = "maybe_trim_front" in traits  # the model of such a layer makes the mask itself
    if traits.kind == "attention" and "make_mask" not in traits and not builds_own:
        told = "has no make_mask: plain causal masks from position 0 stand in for its own"
        yield Finding(Answer.DEGRADED, told)


CONSUMER = Consumer(
    name="mlx-lm:generate",
    about="Text generation with one sequence: chunked prefill, then decoding.",
    kinds=("attention", "recurrent"),
    needs=NEEDS,
    members=MEMBERS,
    asks=single,
    issues=("ml-explore/mlx-lm#843", "ml-explore/mlx-lm#487"),
)
