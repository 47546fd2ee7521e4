"""Checks of the copying contract: ``copy.deepcopy`` and pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from hypothesis import strategies as st

from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, NotApplicable, check
from conformance.log import TokenLog
from conformance.strategies import Shape, traces
from conformance.subject import Profile
from conformance.trace import Ask, Operation, Run

SOME = Shape(tokens=32, steps=5, windows=False, arrays=False)


def fork(run: Run, line: str, cache: Any) -> Run:
    """A run that goes on with another cache at the same place; the first keeps its own."""
    other = Run(run.profile, run.dims)
    other.cache = cache
    other.log = TokenLog(run.log.left_padding)
    other.log.ids, other.log._next = list(run.log.ids), run.log._next
    other.lines = [*run.lines, "original = cache", line]
    other.operations = [*run.operations, {"op": "fork", "line": line}]
    return other


@check("COPY-1", needs=NEEDS)
def deep_copy_is_a_fork(ctx: Context) -> None:
    def test(drawn: tuple[list[Operation], list[Operation], list[Operation], bool]) -> None:
        before, first, second, original_first = drawn
        run = ctx.run().apply(before)
        line = "cache = copy.deepcopy(cache)"
        run.lines.append("import copy")
        copied = run.read(line, lambda: copy.deepcopy(run.cache))
        other = fork(run, line, copied)
        # Both go on, in either order; what one does must not show in the other.
        pair = [(run, first), (other, second)]
        for branch, operations in pair if original_first else reversed(pair):
            for operation in [*operations, Ask(1)]:
                branch.apply([operation])
                if isinstance(operation, Ask):
                    whole(branch.steps[-1])
        whole(run.step(Ask(1)))

    empty: st.SearchStrategy[list[Operation]] = st.just([])
    some = traces(ctx.profile, SOME)
    strategy = st.tuples(empty | some, some, some, st.booleans())
    ctx.for_all(strategy, test, fraction=0.5)


def no_pool(profile: Profile) -> str | None:
    return "has no shared storage (the pool contract)"


@check("COPY-2", skip=no_pool)
def shared_storage_is_not_copied(ctx: Context) -> None:
    raise NotApplicable("has no shared storage (the pool contract)")


@check("COPY-3", needs=(*NEEDS, "COPY-1"))
def pickles(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        line = "cache = pickle.loads(pickle.dumps(cache))"
        run.lines.append("import pickle")
        loaded = run.read(line, lambda: pickle.loads(pickle.dumps(run.cache)))
        whole(fork(run, line, loaded).step(Ask(2)))

    ctx.for_traces(SOME, test, fraction=0.2)
