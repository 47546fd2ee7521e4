"""mlx-lm's ``BatchGenerator``: sequences join and leave a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


JOIN = "generate: _merge_caches, _extend_cache"
PROMPT = "PromptProcessingBatch.prompt"
LEAVE = "GenerationBatch.next, filter, extract_cache"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    if traits.batched:
        for name in ("extend", "filter", "extract", "prepare", "finalize"):
            if name not in traits:
                yield Finding(Answer.NO, f"has no {name}, which a batch is asked for")
    elif "merge" not in traits:
        yield Finding(Answer.NO, "has no merge: batching it raises ValueError", "BATCH-7")
    if traits.kind == "attention" and "make_mask" not in traits:
        yield Finding(Answer.DEGRADED, "has no make_mask: padding of shorter rows is attended to")


CONSUMER = Consumer(
    name="mlx-lm:batch",
    about="BatchGenerator, batch_generate and the server: caches are merged, right-padded prompts "
    "are fed in chunks, rows join by extend and leave by extract and filter.",
    kinds=("attention", "recurrent"),
    needs=(
        *(need for need in generate.NEEDS if not set(need.clauses) & {"QNT-1"}),
        Need(("BATCH-1",), PROMPT, "takes every row for what it would be alone"),
        Need(("BATCH-2",), LEAVE, "hands a finished row back as a cache of its own"),
        Need(("BATCH-4", "BATCH-7", "BATCH-9"), JOIN, "rows join and leave by extend and filter"),
        Need(("BATCH-8",), JOIN, "stored members are used again"),
        Need(("BATCH-6",), PROMPT, "prompts of different lengths are padded on the right"),
        Need(("COPY-1",), "PromptProcessingBatch._copy", "splits a batch by copying it"),
        Need(
            ("BATCH-3",),
            JOIN,
            "new caches are merged empty",
            unsure="it merges empty members, and never extracts a row of an empty batch",
        ),
        Need(
            ("BATCH-5",),
            PROMPT,
            "padding is pending between prepare and finalize",
            unsure="it neither filters nor extracts while padding is pending",
        ),
        Need(
            ("REC-6",),
            "models: recurrent layers",
            "advance lowers lengths and left_padding",
            lost="a graph grows by each step",
        ),
    ),
    members=(
        Member("state", PROMPT, "the prompt cannot be evaluated"),
        Member("lengths", "models: recurrent layers", "reading it raises", kinds=("recurrent",)),
        Member("advance", "models: recurrent layers", "the call raises", kinds=("recurrent",)),
    ),
    asks=_asks,
    issues=("ml-explore/mlx-lm#1430",),
)
