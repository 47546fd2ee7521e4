"""Everything that a step of a storing cache owes, at once: for checks that go on after something
was done to the cache (trimmed, copied, restored) and ask whether it can be told apart."""

from __future__ import annotations

from conformance.checks._common import compare_seen
from conformance.checks.position import offset_is
from conformance.checks.update import nothing_else_shows, one_order, retained
from conformance.parts import PartsStep
from conformance.trace import Step

NEEDS = (
    *("POS-2", "UPD-1", "UPD-2", "MASK-1", "MASK-2", "MASK-3", "MASK-4", "MASK-6", "MASK-12"),
    "REC-1",
)
"""What :func:`whole` builds on; what does not apply to a cache does not block it."""


def whole(step: Step) -> None:
    """Fail unless the step's rows, mask and offset are those that the log gives."""
    if isinstance(step, PartsStep):
        run = step.run
        for index, inner in step.inner:
            with run.inside(index):
                whole(inner)
        run.slots_hold(step)
        return
    one_order(step)
    retained(step)
    nothing_else_shows(step)
    compare_seen(step)
    if "offset" in step.run.profile.capabilities.members:
        offset_is(step.run, step.run.log.offsets, f"after {step.run.log.length} tokens")
