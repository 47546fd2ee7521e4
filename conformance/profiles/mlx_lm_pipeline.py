"""mlx-lm's pipelined models: a layer's send hangs on its cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Answer, Consumer, Finding, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


DEPENDS = "models: LanguageModel.__call__ (mx.depends on the last cache's keys)"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    yield from generate.single(traits, report)
    if traits.kind == "attention" and "keys" not in traits:
        told = "has no keys: the models of deepseek_v3 and others raise AttributeError"
        yield Finding(Answer.NO, told, "READ-3")


CONSUMER = Consumer(
    name="mlx-lm:pipeline",
    about="A model split over machines assigns `cache[-1].keys = mx.depends(cache[-1].keys, h)`, "
    "so that evaluating state also runs the send; recurrent layers use slot 0.",
    kinds=("attention", "recurrent"),
    needs=(
        *generate.NEEDS,
        Need(("READ-3",), DEPENDS, "assigns keys, and evaluates them through state"),
    ),
    members=generate.MEMBERS,
    asks=_asks,
)
