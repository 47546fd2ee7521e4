"""Checks of the copying contract: ``copy.deepcopy`` and pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from hypothesis import strategies as st

from conformance.checks.pool import prefixes, request
from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, NotApplicable, check
from conformance.strategies import Shape, traces
from conformance.subject import Profile
from conformance.trace import Ask, Operation, Run, attributes, reachable_arrays

SOME = Shape(tokens=32, steps=5, windows=False, arrays=False)


def fork(run: Run, line: str, cache: Any) -> Run:
    """A run that goes on with another cache at the same place; the first keeps its own.

    In the program ``cache`` is the one that is driven, ``other`` the one that waits.
    """
    other = run.onto(cache)
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


def is_pool(profile: Profile) -> str | None:
    return "is a pool; its caches are copied (COPY-2)" if profile.is_pool else None


@check("COPY-1", needs=NEEDS, skip=is_pool)
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


def held_pool(thing: Any, depth: int = 2) -> Any:
    """The pool that an object holds, or None."""
    for value in attributes(thing):
        if hasattr(value, "set_kv") and hasattr(value, "get_kv"):
            return value
        if depth > 1 and hasattr(value, "__dict__"):
            found = held_pool(value, depth - 1)
            if found is not None:
                return found
    return None


@check("COPY-2", needs=("POOL-1", "POOL-3"))
def shared_storage_is_not_copied(ctx: Context) -> None:
    if not ctx.profile.is_pool and held_pool(ctx.run().cache) is None:
        raise NotApplicable("has no shared storage (it holds no pool)")

    def test(drawn: tuple[tuple[list[int], int], list[Operation], list[Operation]]) -> None:
        (slots, prefix), before, after = drawn
        run = request(ctx, slots, prefix)[0] if ctx.profile.is_pool else ctx.run()
        for operation in before:
            run.apply([operation])
        pool = held_pool(run.cache)
        line = "cache = copy.deepcopy(cache)"
        run.lines.append("import copy")
        copied = run.read(line, lambda: copy.deepcopy(run.cache))
        other = fork(run, line, copied)
        if pool is not None:
            _is_shared(other, pool)
        for operation in [*after, Ask(1)]:
            other.apply([operation])
            if isinstance(operation, Ask):
                whole(other.steps[-1])
        whole(hand_over(other, run).step(Ask(1)))

    # One update at most before the copy and one after it: a pool-backed cache may refuse more.
    some = traces(ctx.profile, Shape(tokens=8, steps=1, windows=False, arrays=False))
    nothing: st.SearchStrategy[list[Operation]] = st.just([])
    start = prefixes(ctx) if ctx.profile.is_pool else st.just(([1], 0))
    ctx.for_all(st.tuples(start, nothing | some, nothing), test, fraction=0.5)


def _is_shared(run: Run, pool: Any) -> None:
    """Fail if the copy holds another pool, or copies of its buffers."""
    own = held_pool(run.cache)
    buffers = reachable_arrays(pool)
    shapes = {array.shape for array in buffers if array.ndim > 1}
    known = {id(array) for array in buffers}
    copied = [
        array
        for array in reachable_arrays(run.cache)
        if array.shape in shapes and id(array) not in known
    ]
    if copied or (own is not None and own is not pool):
        run.fail(
            "deepcopy copies the pool",
            expected="the same pool in both",
            observed="another pool" if own is not None else f"{len(copied)} buffers of its shape",
            code=[
                "mine = [getattr(cache, n, None) for n in "
                "[*getattr(cache, '__dict__', ()), *getattr(type(cache), '__slots__', ())]]",
                "assert any(one is pool for one in mine), 'the copy has a pool of its own'",
            ],
        )


@check("COPY-3", needs=(*NEEDS, "COPY-1"), skip=is_pool)
def pickles(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        line = "cache = pickle.loads(pickle.dumps(cache))"
        run.lines.append("import pickle")
        loaded = run.read(line, lambda: pickle.loads(pickle.dumps(run.cache)))
        whole(fork(run, line, loaded).step(Ask(2)))

    ctx.for_traces(SOME, test, fraction=0.2)
