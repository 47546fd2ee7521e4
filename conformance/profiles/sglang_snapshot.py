"""sglang's MLX backend: states of recurrent layers are stored and restored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


SNAPSHOT = "auxiliary_state: _snapshot_cache, _restore_cache"


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    if not traits.restores:
        told = "its state cannot be assigned, and a restored request raises AttributeError"
        yield Finding(Answer.NO, told, "REST-8")


CONSUMER = Consumer(
    name="sglang:snapshot",
    about="What cannot be trimmed is cloned: state is copied, and assigned to a live cache later, "
    "with offset, lengths and left_padding where they exist.",
    kinds=("attention", "recurrent", "composite"),
    needs=(
        Need(("STATE-1", "STATE-3", "STATE-4"), SNAPSHOT, "clones the leaves of state"),
        Need(("REST-8",), SNAPSHOT, "assigns state to a live cache"),
        Need(("SNAP-1", "SNAP-2", "SNAP-3"), SNAPSHOT, "restores any number of times"),
    ),
    members=(Member("state", SNAPSHOT, "there is nothing to restore from"),),
    asks=_asks,
)
