"""mlx-lm's ``speculative_generate_step``: rejected tokens are trimmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


START = "speculative_generate_step: can_trim_prompt_cache"
REWIND = "speculative_generate_step: _rewind_cache"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    yield from generate.single(traits, report)
    if traits.trims_new is False:
        clause = "REC-4" if traits.kind == "recurrent" else "TRIM-3"
        told = "is_trimmable() is False, and the start raises ValueError"
        yield Finding(Answer.NO, told, clause)
    elif traits.trims_later is False:
        told = "is_trimmable() turns False with its window full: rejected tokens then stay"
        yield Finding(Answer.NO, told, "TRIM-3")


CONSUMER = Consumer(
    name="mlx-lm:speculative",
    about="speculative_generate_step: a draft model proposes tokens, one pass of the target checks "
    "them, and both caches trim what was rejected.",
    kinds=("attention", "recurrent"),
    needs=(
        *generate.NEEDS,
        Need(("TRIM-1", "TRIM-2", "TRIM-4", "TRIM-5"), REWIND, "removes the rejected tokens"),
        Need(("TRIM-3",), REWIND, "trims a cache that said before the prefill that it can"),
        Need(("POS-6",), REWIND, "goes on at the offset that trimming left"),
    ),
    members=(
        *generate.MEMBERS,
        Member("is_trimmable", START, "the start raises AttributeError"),
        Member("trim", REWIND, "rejected tokens cannot be removed"),
    ),
    asks=_asks,
    issues=("ml-explore/mlx-lm#1494", "ml-explore/mlx-lm#1512"),
)
