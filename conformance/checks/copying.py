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
    """A run that goes on with another cache at the same place; the first keeps its own.

    In the program ``cache`` is the one that is driven, ``other`` the one that waits.
    """
    other = Run(run.profile, run.dims)
    other.cache = cache
    other.log = TokenLog(run.log.left_padding)
    other.log.ids = list(run.log.ids)
    # Numbers of its own, so that a token tells which branch it was given to.
    other.log._next = run.log._next + 100
    other.lines = [*run.lines, "other = cache", line]
    other.operations = [*run.operations, {"op": "fork", "line": line}]
    return other


def hand_over(driven: Run, waiting: Run) -> Run:
    """The other branch goes on, in the same program."""
    waiting.lines[:] = [*driven.lines, "cache, other = other, cache"]
    return waiting


def cannot_be_told_apart(run: Run, other: Run) -> Run:
    """Fail if the forked cache answers anything otherwise than the one it comes from."""
    before, after = run.observe(state=False), other.observe(state=False)
    for name, value in before.items():
        if name in after and after[name] != value:
            other.fail(
                f"{name} of the new cache is not that of the old one",
                expected=str(value)[:80],
                observed=str(after[name])[:80],
                code=[
                    "cache, other = other, cache",
                    f"before = str({name})",
                    "cache, other = other, cache",
                    f"assert str({name}) == before, {name}",
                ],
            )
    return other


@check("COPY-1", needs=NEEDS)
def deep_copy_is_a_fork(ctx: Context) -> None:
    def test(drawn: tuple[list[Operation], list[Operation], list[Operation]]) -> None:
        before, first, second = drawn
        run = ctx.run().apply(before)
        line = "cache = copy.deepcopy(cache)"
        run.lines.append("import copy")
        copied = run.read(line, lambda: copy.deepcopy(run.cache))
        other = fork(run, line, copied)
        cannot_be_told_apart(run, other)
        # Both go on, in turns; what one does must not show in the other.
        driven = other
        for branch, operations in ((run, first), (other, second), (run, [])):
            if branch is not driven:
                driven = hand_over(driven, branch)
            for operation in [*operations, Ask(1)]:
                branch.apply([operation])
                if isinstance(operation, Ask):
                    whole(branch.steps[-1])
        whole(hand_over(driven, other).step(Ask(1)))

    empty: st.SearchStrategy[list[Operation]] = st.just([])
    some = traces(ctx.profile, SOME)
    strategy = st.tuples(empty | some, some, some)
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
