"""Checks of the trim contract: ``is_trimmable`` and ``trim``."""

from __future__ import annotations

import copy
from typing import Any

from conformance.checks.position import offset_is
from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, NotApplicable, check
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.trace import REFUSALS, Ask, EndOfTrace, Operation, Run
from kvproto.visibility import Full

TRIMS = Shape(windows=False, arrays=False, trims=True, tokens=32)


def no_trim(profile: Profile) -> str | None:
    has = {"is_trimmable", "trim"} <= profile.capabilities.members
    return None if has else "has no trim and is_trimmable"


def is_batch(profile: Profile) -> bool:
    return profile.claims.left_padding is not None


def trimmable(run: Run) -> bool:
    return bool(run.read("cache.is_trimmable()", run.cache.is_trimmable))


def remove(run: Run, count: int) -> int:
    """Trim and let the log follow; fails unless the count is one that can be true."""
    run.operations.append({"op": "trim", "count": count})
    removed = run.call(f"trimmed = cache.trim({count})", lambda: run.cache.trim(count))
    most = min(count, run.log.length)
    if not isinstance(removed, int) or not 0 <= removed <= most:
        run.fail(
            f"trim({count}) of {run.log.length} tokens says that it removed {removed!r}",
            expected=f"a count from 0 to {most}",
            observed=repr(removed),
            code=[f"assert 0 <= trimmed <= {most}, trimmed"],
        )
    run.log.trim(removed)
    return removed


def goes_on(run: Run, operations: list[Operation]) -> None:
    """Run a trace with trims, everything checked after each step."""
    for operation in operations:
        if isinstance(operation, Ask):
            whole(run.step(operation))
        elif run.log.length and trimmable(run):
            removed = remove(run, operation.count)
            offset_is(run, run.log.offsets, f"after trim({operation.count}) returned {removed}")
    whole(run.step(Ask(1)))


@check("TRIM-1", needs=NEEDS, skip=lambda p: no_trim(p) or ("see TRIM-6" if is_batch(p) else None))
def removes_the_newest(ctx: Context) -> None:
    ctx.for_traces(TRIMS, goes_on)


@check(
    "TRIM-6",
    needs=NEEDS,
    skip=lambda p: no_trim(p) or (None if is_batch(p) else "is no batch: see TRIM-1"),
)
def removes_columns_of_a_batch(ctx: Context) -> None:
    ctx.for_traces(TRIMS, goes_on)


@check("TRIM-2", needs=("UPD-1",), skip=no_trim)
def removes_what_it_promised(ctx: Context) -> None:
    full = isinstance(ctx.profile.claims.visibility, Full)

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Ask):
                run.step(operation)
            elif run.log.length and trimmable(run):
                before = run.log.length
                dropped = not full and run.steps[-1].length < before
                removed = remove(run, operation.count)
                if removed < min(operation.count, before) and not dropped:
                    run.fail(
                        f"is_trimmable() is True, and trim({operation.count}) of {before} tokens "
                        f"removes {removed}",
                        expected=str(min(operation.count, before)),
                        observed=str(removed),
                        code=[f"assert trimmed == {min(operation.count, before)}, trimmed"],
                    )

    ctx.for_traces(TRIMS, test, masks=False)


@check("TRIM-3", needs=NEEDS, skip=no_trim)
def refuses_without_harm(ctx: Context) -> None:
    reached = 0

    def test(run: Run, operations: list[Operation]) -> None:
        nonlocal reached
        for operation in operations:
            assert isinstance(operation, Ask)
            whole(run.step(operation))
        if trimmable(run):
            return
        reached += 1
        count = 1 + run.log.length % 4
        before = run.observe(state=False)
        removed: Any = 0
        run.lines += ["try:", f"    trimmed = cache.trim({count})", "except Exception: trimmed = 0"]
        try:
            removed = run.cache.trim(count)
        except REFUSALS:
            pass
        except Exception as error:
            run.raised(error, f"cache.trim({count})")
        if removed != 0:
            run.fail(
                f"is_trimmable() is False, and trim({count}) says that it removed {removed!r}",
                expected="0, or an exception",
                observed=repr(removed),
                code=["assert trimmed == 0, trimmed"],
            )
        after = run.observe(state=False)
        changed = [name for name in before if after[name] != before[name]]
        if changed:
            run.fail(
                f"a trim that was refused changes {changed[0]}",
                expected=str(before[changed[0]])[:80],
                observed=str(after[changed[0]])[:80],
                code=["raise AssertionError('it has changed')"],
            )
        whole(run.step(Ask(1)))

    ctx.for_traces(Shape(windows=False, arrays=False), test)
    if not reached:
        raise NotApplicable("is_trimmable() was never False")


@check("TRIM-4", needs=(*NEEDS, "TRIM-1", "TRIM-2", "TRIM-6"), skip=no_trim)
def clamps_and_ignores_zero(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
        if not trimmable(run):
            raise EndOfTrace("cannot be trimmed here")
        if remove(run, 0):
            raise EndOfTrace("TRIM-1")
        offset_is(run, run.log.offsets, "after trim(0)")
        whole(run.step(Ask(1)))
        if not trimmable(run):
            raise EndOfTrace("cannot be trimmed any more")
        length = run.log.length
        removed = remove(run, length + 5)
        dropped = run.steps[-1].length < length
        if removed != length and not dropped:
            run.fail(
                f"trim({length + 5}) of {length} tokens does not remove them all",
                expected=str(length),
                observed=str(removed),
                code=[f"assert trimmed == {length}, trimmed"],
            )
        offset_is(run, run.log.offsets, f"after trim({length + 5})")
        whole(run.step(Ask(2)))
        whole(run.step(Ask(1)))

    ctx.for_traces(Shape(windows=False, arrays=False, tokens=24), test, fraction=0.5)


@check("TRIM-5", needs=("UPD-1",))
def trimmable_means_trim(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        members = ctx.profile.capabilities.members
        if "is_trimmable" in members and trimmable(run) and "trim" not in members:
            run.fail(
                "is_trimmable() is True, and there is no trim",
                expected="trim, or is_trimmable() False",
                observed="no trim",
                code=["assert not cache.is_trimmable() or hasattr(cache, 'trim')"],
            )

    ctx.for_traces(Shape(steps=3, windows=False, arrays=False), test, masks=False, fraction=0.2)


@check("TRIM-7", needs=("UPD-1", "UPD-2"), skip=no_trim)
def negative_counts_are_refused(ctx: Context) -> None:
    def test(count: int) -> None:
        run = ctx.run(masks=False)
        run.step(Ask(4))
        before = run.observe(state=False)
        line = f"trimmed = cache.trim({count})"
        error = run.attempt(line, lambda: run.cache.trim(count))
        after = run.observe(state=False)
        changed = [name for name in before if after[name] != before[name]]
        if changed or (error is not None and not isinstance(error, ValueError)):
            run.fail(
                f"trim({count}) is not refused",
                expected=f"ValueError, or {changed[0] if changed else 'nothing'} as before: "
                f"{before[changed[0]] if changed else ''}",
                observed=f"{changed[0]} {after[changed[0]]}" if changed else repr(error),
                code=["assert cache.offset == 4, cache.offset"],
            )

    ctx.for_each((-1, -2), test)


@check("TRIM-8", needs=("UPD-1", "COPY-1"), skip=no_trim)
def says_when_it_cannot_go_back(ctx: Context) -> None:
    reached = 0

    def test(run: Run, operations: list[Operation]) -> None:
        nonlocal reached
        run.apply(operations)
        length = run.log.length
        if run.steps[-1].length >= length:
            return  # nothing was dropped
        reached += 1
        if not trimmable(run):
            return
        removed = copy.deepcopy(run.cache).trim(length)
        if removed < length:
            run.fail(
                f"its front was dropped and it cannot go back {length} tokens, and "
                "is_trimmable() is True",
                expected="is_trimmable() False",
                observed=f"True, and trim({length}) removes {removed}",
                code=[f"assert not cache.is_trimmable() or cache.trim({length}) == {length}"],
            )

    ctx.for_traces(Shape(windows=False, arrays=False), test, masks=False)
    if not reached:
        raise NotApplicable("nothing was ever dropped from its front")
