"""sglang's MLX backend: a request begins with keys and values it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report

if TYPE_CHECKING:
    pass


ACQUIRE = "model_runner: _acquire_cache, prefill_start"
SYNC = "model_runner: _sync_new_kv_to_pool"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    if traits.batched:
        yield Finding(Answer.NO, "is constructed as a batch; there each request has its own cache")
    if traits.quantized:
        yield Finding(Answer.NO, "its keys are quantised triples, which cannot be sliced by token")
    if report.visibility != "full" and "keys" in traits:
        yield Finding(Answer.NO, f"is {report.visibility}: position p is not at row p of keys")


CONSUMER = Consumer(
    name="sglang:prefix-hit",
    about="A cached prefix is put in front of a request. A buffer is used again by assigning "
    "offset 0, a full hit by lowering offset by one and feeding the last token again.",
    kinds=("attention",),
    needs=(
        Need(("UPD-1", "UPD-2", "UPD-3", "UPD-4"), ACQUIRE, "puts the prefix in by one update"),
        Need(("POS-2", "MASK-3", "MASK-4"), ACQUIRE, "feeds the rest of the prompt"),
        Need(("POS-7",), ACQUIRE, "lowers offset in place of a trim"),
        Need(("POOL-1", "POOL-3", "POOL-4"), SYNC, "keeps the prefix in a pool"),
    ),
    members=(
        Member("offset", ACQUIRE, "it raises AttributeError"),
        Member("keys", SYNC, "new rows cannot be copied to the pool"),
        Member("values", SYNC, "new rows cannot be copied to the pool"),
    ),
    asks=_asks,
)
