"""Checks of the measure contract: ``size``, ``empty`` and ``nbytes``."""

from __future__ import annotations

from collections.abc import Callable

from conformance.checks._common import needed_columns
from conformance.engine import Context, check
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.trace import Operation, Run, reachable_arrays
from kvproto.visibility import Full, Sinks, SlidingWindow


def some(ctx: Context) -> Shape:
    """Traces with trims, where trimming itself is right."""
    return Shape(windows=False, arrays=False, trims=ctx.works("TRIM-1", "TRIM-6"))


def lacks(name: str) -> Callable[[Profile], str | None]:
    return lambda p: None if name in p.capabilities.members else f"has no {name}"


@check("MEAS-1", needs=("UPD-1",), skip=lacks("size"))
def size_counts_what_is_served(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility

    def expected(run: Run) -> tuple[int, int]:
        if isinstance(visibility, Full):
            return run.log.length, run.log.length
        if isinstance(visibility, (SlidingWindow, Sinks)):
            count = min(run.log.length, visibility.window)
            return count, count
        if "start_position" in run.profile.capabilities.members:
            count = run.log.length - int(run.cache.start_position)
            return count, count
        return min(1, run.log.length), run.log.length

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                run.apply([operation])
            got = run.read("cache.size()", run.cache.size)
            least, most = expected(run)
            if not isinstance(got, int) or not least <= got <= most:
                run.fail(
                    f"size() after {run.log.length} tokens is {got!r}",
                    expected=str(most) if least == most else f"{least} to {most}",
                    observed=repr(got),
                    code=[f"assert {least} <= cache.size() <= {most}, cache.size()"],
                )

    ctx.for_traces(some(ctx), test, masks=False, fraction=0.5)


@check("MEAS-2", needs=("UPD-1",), skip=lacks("empty"))
def empty_says_whether_anything_was_stored(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                run.apply([operation])
                if not run.log.ids:
                    continue  # trimmed to nothing: either answer is legal
            got = run.read("cache.empty()", run.cache.empty)
            if got is not (operation is None):
                run.fail(
                    f"empty() after {run.log.length} tokens is {got!r}",
                    expected=str(operation is None),
                    observed=repr(got),
                    code=[f"assert cache.empty() is {operation is None}"],
                )

    ctx.for_traces(some(ctx), test, masks=False, fraction=0.3)


@check("MEAS-3", needs=("UPD-1", "UPD-2"), skip=lacks("nbytes"))
def nbytes_is_what_is_held(ctx: Context) -> None:
    found = ctx.profile.capabilities
    compressed = found.quantized or found.opaque

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                run.apply([operation])
            got = run.read("cache.nbytes", lambda: run.cache.nbytes)
            held = {id(array): array.nbytes for array in reachable_arrays(run.cache)}
            most = sum(held.values())
            least = 0
            if run.steps and run.log.ids and not compressed:
                dims = run.dims
                step = run.steps[-1]
                rows = min(len(needed_columns(step, 0)), run.log.length)
                if run.profile.claims.lossy:
                    rows = 1  # what was returned may be evicted at once, but for the newest token
                row = dims.heads * (dims.key_dim + dims.value_dim) * dims.mx_dtype.size
                least = dims.batch * rows * row if operation is not None else 0
            hides = not held and operation is not None  # an object that shows none of its arrays
            if not isinstance(got, int) or got < least or (got > most and not hides):
                run.fail(
                    f"nbytes after {run.log.length} tokens is {got!r}",
                    expected=f"an int from {least} to {most}",
                    observed=repr(got),
                    code=[
                        f"assert isinstance(cache.nbytes, int) and cache.nbytes >= {least}, "
                        "cache.nbytes"
                    ],
                )

    ctx.for_traces(some(ctx), test, masks=False, fraction=0.3)
