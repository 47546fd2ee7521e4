"""What real consumers need of a cache: one module a consumer, each with its ``CONSUMER``.

A new module in this folder is all that a new profile takes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Judgement, Member, Need

if TYPE_CHECKING:
    from conformance.verdict import Report

__all__ = ["CONSUMERS", "Answer", "Consumer", "Finding", "Judgement", "Member", "Need", "judge"]


def _found() -> Mapping[str, Consumer]:
    found: dict[str, Consumer] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        consumer = getattr(importlib.import_module(module.name), "CONSUMER", None)
        if isinstance(consumer, Consumer):
            if consumer.name in found:
                raise ValueError(f"There are two profiles called {consumer.name!r}")
            found[consumer.name] = consumer
    return found


CONSUMERS = _found()
"""Every consumer by name, in the order of the modules."""


def judge(report: Report) -> dict[str, Judgement]:
    """Whether each consumer works with the subject of a report."""
    return {name: consumer.judge(report) for name, consumer in CONSUMERS.items()}
