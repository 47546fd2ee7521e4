"""Checks of the window contract: sliding windows, attention sinks, dropped fronts."""

from __future__ import annotations

import mlx.core as mx

from conformance.checks._common import Held, compare_seen
from conformance.checks.position import offset_is
from conformance.checks.update import retained
from conformance.engine import Context, NotApplicable, check
from conformance.strategies import Shape
from conformance.subject import SINK_NAMES, WINDOW_NAMES, Profile
from conformance.trace import Ask, Operation, Run, reachable_arrays
from kvproto.visibility import Chunk, Sinks, SlidingWindow

APPENDS = Shape(tokens=64, steps=10, windows=False, arrays=False)


def window_of(profile: Profile) -> int:
    visibility = profile.claims.visibility
    assert isinstance(visibility, (SlidingWindow, Sinks))
    return visibility.window


def no_window(profile: Profile) -> str | None:
    if isinstance(profile.claims.visibility, (SlidingWindow, Sinks)):
        return None
    return f"declares no window ({profile.claims.visibility})"


def no_sinks(profile: Profile) -> str | None:
    visibility = profile.claims.visibility
    return None if isinstance(visibility, Sinks) else f"declares no sinks ({visibility})"


def no_chunk(profile: Profile) -> str | None:
    if "maybe_trim_front" not in profile.capabilities.members:
        return "has no maybe_trim_front"
    visibility = profile.claims.visibility
    return None if isinstance(visibility, Chunk) else f"declares no chunk ({visibility})"


@check("WIN-1", needs=("UPD-1", "UPD-2"), skip=no_window)
def every_query_has_its_window(ctx: Context) -> None:
    window = window_of(ctx.profile)

    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            retained(step)

    ctx.for_traces(APPENDS, test, masks=False)

    # Rows beyond the window are legal while a mask hides them (a buffer, a chunk in flight), so
    # what is asked is that a long history does not bring ever more of them.
    def long_history(count: int) -> None:
        run = ctx.run(masks=False)
        while run.log.length < max(2048, 8 * window):
            run.append(count)
            mx.eval(reachable_arrays(run.cache))
        step = run.step(Ask(1))
        most = run.log.length // 2
        if step.length > most:
            run.fail(
                f"after {run.log.length} tokens a window of {window} returns {step.length} rows: "
                "it is not bounded",
                expected="far fewer rows than tokens",
                observed=f"{step.length} rows",
                code=[f"assert {run.length_code()} <= {most}, {run.length_code()}"],
                step=step,
            )

    ctx.for_each((window, 2 * window + 1), long_history)


@check("WIN-2", needs=("UPD-1", "POS-1"), skip=no_window)
def offset_stays_absolute(ctx: Context) -> None:
    window = window_of(ctx.profile)

    def test(count: int) -> None:
        run = ctx.run(masks=False)
        while run.log.length <= 3 * window + 1:
            run.step(Ask(count))
            if "offset" in run.profile.capabilities.members:
                offset_is(run, run.log.offsets, f"after {run.log.length} tokens")

    ctx.for_each((1, 3, window, window + 1), test)


@check("WIN-3", needs=("UPD-1", "MASK-1", "MASK-2"), skip=no_sinks)
def sinks_are_seen_by_every_query(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility
    assert isinstance(visibility, Sinks)

    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            for query, column in enumerate(step.columns):
                for row in range(run.dims.batch):
                    padding = run.log.left_padding[row]
                    wanted = [
                        step.ids[sink]
                        for sink in range(padding, min(padding + visibility.sinks, column + 1))
                    ]
                    seen = step.seen(row, query)
                    lost = [number for number in wanted if number not in seen]
                    if lost:
                        run.fail(
                            f"query {query} of {step.ask.count}, at position {column - padding}, "
                            f"does not see the attention sinks {lost}",
                            expected=f"tokens {wanted} among those it sees",
                            observed=f"tokens {sorted(seen)}",
                            code=[
                                f"got = seen(mask, keys, {step.ask.count}, {query}, {row})",
                                f"assert {{*{wanted}}} <= {{*got}}, got",
                            ],
                            step=step,
                        )

    ctx.for_traces(APPENDS, test)


@check("WIN-4", needs=("UPD-1", "UPD-2", "MASK-1"), skip=no_window)
def full_context_is_refused_or_windowed(ctx: Context) -> None:
    if "make_mask" not in ctx.profile.capabilities.members:
        raise NotApplicable("has no make_mask (MASK-12)")
    window = window_of(ctx.profile)

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
            step = run.steps[-1]
            if run.log.length > window and step.refused is None:
                if not step.symbolic and step.mask.shape[-1] != step.length:
                    run.fail(
                        "a mask for the full context promises keys that were dropped",
                        expected=f"a refusal, or a mask over {step.length} keys",
                        observed=f"a mask over {step.mask.shape[-1]} keys",
                        code=[f"assert mask.shape[-1] == {run.length_code()}, mask.shape"],
                        step=step,
                    )
                compare_seen(step)

    ctx.for_traces(APPENDS, test)


@check("WIN-5", skip=no_window)
def senseless_windows_are_rejected(ctx: Context) -> None:
    subject = ctx.profile.subject
    if subject.constructor is None:
        raise NotApplicable("made by a function: the constructor is not known")
    window = subject.parameter(WINDOW_NAMES)
    if window is None:
        raise NotApplicable(f"its constructor has none of {', '.join(WINDOW_NAMES)}")
    sinks = subject.parameter(SINK_NAMES)
    size = window_of(ctx.profile)
    cases: list[dict[str, int]] = [{window: 0}, {window: -1}]
    if sinks is not None:
        cases += [{sinks: -1}, {sinks: size}]
    for case in cases:
        ctx.tried += 1
        shown = ", ".join(
            f"{name}={value}" for name, value in {**subject.arguments, **case}.items()
        )
        name = getattr(subject.constructor, "__name__", "cls")
        try:
            subject.construct(**case)
        except (ValueError, TypeError):
            continue
        run = ctx.run(masks=False)
        run.lines.append(f"{name}({shown})")
        run.fail(
            f"{name}({shown}) is constructed",
            expected="ValueError",
            observed="a cache",
            code=["raise AssertionError('no ValueError')"],
        )


@check("WIN-6", needs=("UPD-1",), skip=no_window)
def rows_held_are_bounded(ctx: Context) -> None:
    window = window_of(ctx.profile)

    def test(run: Run, operations: list[Operation]) -> None:
        largest = 0
        for operation in operations:
            assert isinstance(operation, Ask)
            run.apply([operation])
            largest = max(largest, operation.count)
            held = [array.shape[-2] for array in reachable_arrays(run.cache) if array.ndim >= 3]
            most = 2 * window + max(largest, window)
            if held and max(held) > most:
                run.fail(
                    f"{max(held)} rows are held for a window of {window}",
                    expected=f"at most {most}",
                    observed=f"{max(held)} rows",
                    code=["raise AssertionError([a.shape for a in arrays(cache.state)])"],
                )

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.5)


@check("WIN-7", needs=("UPD-1", "UPD-2"), skip=no_window)
def dropping_rows_leaves_arrays_alone(ctx: Context) -> None:
    if ctx.profile.capabilities.opaque:
        raise NotApplicable("returns handles, which only the next attention uses")
    window = window_of(ctx.profile)

    def test(counts: tuple[int, ...]) -> None:
        run = ctx.run(masks=False)
        held = Held(run, "an array that an earlier append returned")
        while run.log.length <= 3 * window:
            for count in counts:
                step = run.step(Ask(count))
                held.check()
                held.keep("(keys, values)", (step.keys, step.values))

    ctx.for_each([(1,), (window,), (window + 1, 1), (3, 1, 1)], test)


@check("WIN-8", needs=("UPD-1",), skip=no_chunk)
def the_front_is_dropped(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility
    assert isinstance(visibility, Chunk)

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            assert isinstance(operation, Ask)
            before = run.log.length
            run.call("cache.maybe_trim_front()", run.cache.maybe_trim_front)
            start = int(run.read("cache.start_position", lambda: run.cache.start_position))
            if not max(0, before - visibility.chunk) <= start <= before:
                run.fail(
                    f"after maybe_trim_front() at offset {before} start_position is {start}",
                    expected=f"{max(0, before - visibility.chunk)} to {before}: at most "
                    f"{visibility.chunk} rows are left",
                    observed=str(start),
                    code=[f"assert {before} - cache.start_position <= {visibility.chunk}"],
                )
            # The front was trimmed above; the step asks again, which must change nothing.
            step = run.step(operation)
            start = int(run.cache.start_position)
            wanted = before + operation.count - start
            if step.length != wanted:
                run.fail(
                    f"the append of {operation.count} at offset {before} with start_position "
                    f"{start} returns {step.length} rows",
                    expected=f"{wanted} rows",
                    observed=f"{step.length} rows",
                    code=[f"assert {run.length_code()} == {wanted}, {run.length_code()}"],
                    step=step,
                )
            retained(step)

    ctx.for_traces(APPENDS, test, masks=False)
