"""mlx-lm's ``LRUPromptCache``: the server's store of prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


INSERT = "LRUPromptCache.insert_cache"
FETCH = "LRUPromptCache.fetch_nearest_cache"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    if traits.trims_new is False or traits.trims_later is False:
        when = "" if traits.trims_new is False else " once its window is full"
        told = f"is_trimmable() is False{when}: a longer stored prompt serves no shorter one"
        yield Finding(Answer.DEGRADED, told)


CONSUMER = Consumer(
    name="mlx-lm:prompt-store",
    about="LRUPromptCache keeps caches by prompt. An exact or shorter prompt is deep-copied; of a "
    "longer one a copy is trimmed.",
    kinds=("attention", "recurrent", "composite"),
    needs=(
        Need(("COPY-1", "COPY-2"), FETCH, "hands out a deep copy, and keeps the original"),
        Need(("TRIM-1", "TRIM-2", "TRIM-5"), FETCH, "cuts a longer prompt to the common prefix"),
        Need(("COMP-1",), FETCH, "trims children together"),
        Need(
            ("MEAS-3",),
            INSERT,
            "adds nbytes of every layer",
            unsure="what it stores was filled, and nbytes may fail on an empty cache only",
        ),
        Need(("PROMPT-2", "PROMPT-4"), FETCH, "what it hands out is the state after the prefix"),
    ),
    members=(
        Member("nbytes", INSERT, "storing it raises AttributeError"),
        Member("is_trimmable", INSERT, "storing it raises AttributeError"),
    ),
    asks=_asks,
    issues=("ml-explore/mlx-lm#1494",),
)
