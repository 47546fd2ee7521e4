"""Checks of the threads contract: another thread, and mx.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import mlx.core as mx

from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, check
from conformance.subject import Profile
from conformance.trace import Ask, Run

T = TypeVar("T")

TRACES: tuple[tuple[Ask, ...], ...] = (
    (Ask(3),),
    (Ask(3), Ask(1), Ask(1)),
    (Ask(9), Ask(1), Ask(2)),
    (Ask(40), Ask(1)),
)
"""Prefill, decode, a window that wraps, a growth."""


def elsewhere(work: Callable[[], T]) -> T:
    """Do this in a thread of its own; raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def filled(ctx: Context, operations: Sequence[Ask], *, state: bool) -> Run:
    """A run whose cache was made and filled in another thread.

    Args:
        state: whether state is evaluated there, or else what each update returned.
    """

    def fill() -> Run:
        run = ctx.run()
        run.lines.append(f"cache = {run.profile.subject.call or '...'}")
        for operation in operations:
            run.step(operation, evaluate=not state)
            if not state:
                run.lines.append("mx.eval(keys, values)")
        if state and "state" in run.profile.capabilities.members:
            run.call("mx.eval(cache.state)", lambda: mx.eval(run.cache.state))
        return run

    run = elsewhere(fill)
    run.lines[:] = [
        "from concurrent.futures import ThreadPoolExecutor",
        "",
        "def in_another_thread():",
        "    global cache, keys, values",
        *(f"    {line}" for line in run.lines),
        "",
        "ThreadPoolExecutor(1).submit(in_another_thread).result()",
    ]
    return run


def goes_on_here(run: Run) -> None:
    """Fail unless this thread can read the cache, and go on with it."""
    members = run.profile.capabilities.members
    try:
        if "offset" in members:
            line = "mx.eval(cache.offset)"
            run.call(line, lambda: mx.eval(run.cache.offset))
        if "state" in members:
            run.call("mx.eval(cache.state)", lambda: mx.eval(run.cache.state))
        for count in (2, 1):
            whole(run.step(Ask(count)))
    except RuntimeError as error:  # an array of the other thread, met where it is evaluated
        run.lines.append("mx.eval(keys, values, mask)")
        run.raised(error, run.lines[-1])


@check("RUN-1", needs=(*NEEDS, "STATE-1"))
def evaluated_state_crosses_threads(ctx: Context) -> None:
    ctx.for_each(TRACES, lambda trace: goes_on_here(filled(ctx, trace, state=True)))


def does_not_compile(profile: Profile) -> str | None:
    if getattr(profile.subject.factory(), "compilable", False) is True:
        return None
    return "does not say that it can be used inside mx.compile (compilable = True)"


@check("RUN-2", needs=NEEDS, skip=does_not_compile)
def compiled_updates_are_right(ctx: Context) -> None:
    def test(first: int) -> None:
        run = ctx.run()
        whole(run.step(Ask(first)))
        line = (
            "cache.update_and_fetch = mx.compile("
            "cache.update_and_fetch, inputs=cache.state, outputs=cache.state)"
        )

        def compile_it() -> None:
            state = run.cache.state
            run.cache.update_and_fetch = mx.compile(
                run.cache.update_and_fetch, inputs=state, outputs=state
            )

        run.call(line, compile_it)
        for count in (1, 1, 1, 2, 1):
            whole(run.step(Ask(count)))

    ctx.for_each((1, 3), test)


@check("RUN-3", needs=(*NEEDS, "RUN-1"))
def evaluated_rows_cross_threads(ctx: Context) -> None:
    ctx.for_each(TRACES, lambda trace: goes_on_here(filled(ctx, trace, state=False)))
