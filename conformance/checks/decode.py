"""Checks of the decode contract: ``write_token``, ``get_kv`` and ``reset``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from hypothesis import strategies as st

from conformance.checks.layout import Model, constructed, layout_of
from conformance.checks.position import offset_is
from conformance.checks.update import retained
from conformance.checks.whole import NEEDS, whole
from conformance.decoding import Layer, Requests, claimed, maker, why_not, window_of
from conformance.engine import Context, NotApplicable, check
from conformance.program import ranges
from conformance.strategies import Shape, boundaries, traces
from conformance.subject import Profile
from conformance.tags import KEYS, UNKNOWN, VALUES
from conformance.trace import REFUSALS, Ask, Operation, Run
from kvproto.visibility import Full, Sinks, SlidingWindow

CAPACITY_NAMES = ("capacity", "max_seq_len", "max_length", "max_tokens", "buffer_size")
SOME = Shape(tokens=40, steps=5, windows=False, arrays=False)


def lacks(*names: str) -> Callable[[Profile], str | None]:
    def skip(profile: Profile) -> str | None:
        missing = [name for name in names if name not in profile.capabilities.members]
        return f"has no {missing[0]}" if missing else None

    return skip


def write(run: Run, count: int = 1) -> None:
    """Append tokens by write_token, each with its own call."""
    for _ in range(count):
        (number,) = run.log.append(1)
        keys, values = run.tokens([number])
        line = f"cache.write_token(*tokens([{number}]))"
        result = run.call(line, lambda k=keys, v=values: run.cache.write_token(k, v))  # type: ignore[misc]
        if result is not None:
            run.fail(
                "write_token returns something",
                expected="None",
                observed=type(result).__name__,
                code=[f"assert {line} is None"],
            )


def read(run: Run, window: int | None) -> list[int]:
    """The token numbers that get_kv gives, keys and values agreeing."""
    shown = "" if window is None else str(window)
    arguments = () if window is None else (window,)
    result = run.call(f"keys, values = cache.get_kv({shown})", lambda: run.cache.get_kv(*arguments))
    keys, values = run.unpack(result)
    every = list(range(run.log._next))
    got = [int(number) for number in run.identify(keys, KEYS, every)[0, 0]]
    if run.dims.value_dim:
        other = [int(number) for number in run.identify(values, VALUES, every)[0, 0]]
        if other != got:
            run.fail(
                "get_kv gives values of other tokens than its keys",
                expected=f"tokens {ranges(got)}",
                observed=f"tokens {ranges(other)}",
                code=["assert numbers(values, 0, 1) == numbers(keys), numbers(values, 0, 1)"],
            )
    return got


@check("DEC-1", needs=NEEDS, skip=lacks("write_token"))
def writes_one_token(ctx: Context) -> None:
    def test(drawn: tuple[list[Operation], int, list[Operation]]) -> None:
        before, count, after = drawn
        run = ctx.run().apply(before)
        write(run, count)
        if "offset" in run.profile.capabilities.members:
            offset_is(run, run.log.offsets, f"after {count} tokens by write_token")
        for operation in [*after, Ask(1)]:
            run.apply([operation])
            if isinstance(operation, Ask):
                whole(run.steps[-1])

    empty: st.SearchStrategy[list[Operation]] = st.just([])
    some = traces(ctx.profile, SOME)
    ctx.for_all(st.tuples(empty | some, st.integers(1, 4), empty | some), test, fraction=0.5)

    def at_a_boundary(boundary: int) -> None:
        run = ctx.run(masks=False)
        run.step(Ask(boundary - 1))
        write(run, 3)
        retained(run.step(Ask(1)))

    ctx.for_each(boundaries(ctx.profile, 1100), at_a_boundary)


@check("DEC-2", needs=("UPD-1", "UPD-2", "DEC-1"), skip=lacks("write_token", "get_kv"))
def reads_the_newest(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility

    def test(drawn: tuple[list[Operation], int, int]) -> None:
        before, count, window = drawn
        run = ctx.run(masks=False).apply(before)
        write(run, count)
        sinks = visibility.sinks if isinstance(visibility, Sinks) else 0
        most = visibility.window if isinstance(visibility, SlidingWindow) else None
        asked = min(window, most) if most else window
        expected = run.log.ids[-asked:]
        got = read(run, asked)
        if not sinks and got != expected:
            run.fail(
                f"get_kv({asked}) of {run.log.length} tokens is not the newest {len(expected)}",
                expected=f"tokens {ranges(expected)}",
                observed=f"tokens {ranges(got)}",
                code=[f"assert numbers(keys) == {expected}, numbers(keys)"],
            )
        got = read(run, None)
        order = [number for number in run.log.ids if number in got]
        wanted = run.log.ids if isinstance(visibility, Full) else order
        if UNKNOWN in got or got != wanted:
            run.fail(
                "get_kv() is not all retained tokens in temporal order",
                expected=f"tokens {ranges(wanted)}",
                observed=f"tokens {ranges(got)}",
                code=[f"assert numbers(keys) == {wanted}, numbers(keys)"],
            )

    some = traces(ctx.profile, SOME)
    empty: st.SearchStrategy[list[Operation]] = st.just([])
    ctx.for_all(st.tuples(empty | some, st.integers(1, 3), st.integers(1, 40)), test, fraction=0.5)


@check("DEC-3", needs=NEEDS, skip=lacks("reset"))
def reset_begins_anew(ctx: Context) -> None:
    def test(drawn: tuple[list[Operation], list[Operation]]) -> None:
        before, after = drawn
        run = ctx.run().apply(before)
        run.call("cache.reset()", run.cache.reset)
        run.log.trim(run.log.length)
        if "offset" in run.profile.capabilities.members:
            offset_is(run, run.log.offsets, "after reset()")
        for operation in [*after, Ask(1)]:
            run.apply([operation])
            if isinstance(operation, Ask):
                whole(run.steps[-1])

    some = traces(ctx.profile, SOME)
    ctx.for_all(st.tuples(some, some), test, fraction=0.5)

    def other_dtype(dtype: str) -> None:
        run = ctx.run(masks=False)
        run.step(Ask(3))
        run.call("cache.reset()", run.cache.reset)
        run.log.trim(3)
        wanted = getattr(mx, dtype)
        keys, values = (rows.astype(wanted) for rows in run.tokens(run.log.append(2)))
        line = (
            f"keys, values = cache.update_and_fetch(*(rows.astype(mx.{dtype}) "
            f"for rows in tokens({run.log.ids})))"
        )
        run.lines.append(line)
        try:
            got: Any = run.unpack(run.cache.update_and_fetch(keys, values))[0]
        except REFUSALS:
            return
        rows = got[1] if run.is_triples(got) else got
        if rows.dtype != wanted:
            run.fail(
                f"after reset() {dtype} rows are cast to the dtype of the earlier request",
                expected=dtype,
                observed=str(rows.dtype),
                code=[f"assert keys.dtype == mx.{dtype}, keys.dtype"],
            )

    ctx.for_each(ctx.profile.claims.dtypes[1:], other_dtype)


@check("DEC-4", needs=("UPD-1",))
def capacities_are_sane(ctx: Context) -> None:
    subject = ctx.profile.subject
    if subject.constructor is None:
        raise NotApplicable("made by a function: the constructor is not known")
    name = subject.parameter(CAPACITY_NAMES)
    if name is None:
        raise NotApplicable(f"its constructor has none of {', '.join(CAPACITY_NAMES)}")

    for value in (0, -1):
        ctx.tried += 1
        try:
            subject.construct(**{name: value})
        except (ValueError, TypeError):
            continue
        run = ctx.run(masks=False)
        shown = f"{getattr(subject.constructor, '__name__', 'cls')}({name}={value})"
        run.lines.append(shown)
        run.fail(
            f"{shown} is constructed",
            expected="ValueError",
            observed="a cache (growing from it may never end)",
            code=["raise AssertionError('no ValueError')"],
        )
    for value in (1, 2, 3):
        ctx.tried += 1
        run = ctx.run(masks=False)
        run.cache = subject.construct(**{name: value})
        for count in (1, 2, 1, 5):
            retained(run.step(Ask(count)))


LENGTHS = st.lists(st.integers(1, 20), min_size=2, max_size=4)
"""Tokens of each request's prompt."""


@check("DEC-5", needs=("UPD-1", "UPD-2"))
def each_request_gets_its_own(ctx: Context) -> None:
    if ctx.profile.is_layout:
        over_a_layout(ctx)
        return
    reason = why_not(ctx.profile)
    if reason:
        raise NotApplicable(reason)

    def test(drawn: tuple[list[int], int]) -> None:
        lengths, steps = drawn
        layers = [Layer(ctx.profile, window_of(ctx.profile))]
        requests = Requests(ctx.run(masks=False), layers, lengths, dims=dims, blames=True)
        for _ in range(steps):
            requests.step()

    dims = ctx.dims(batch=1)
    ctx.for_all(st.tuples(LENGTHS, st.integers(1, 3)), test, fraction=0.5)


def over_a_layout(ctx: Context) -> None:
    """Decode steps that a layout makes, over known caches."""
    constructed(ctx)
    maker(ctx.profile, ctx.profile.subject.factory())
    profiles = claimed(ctx.profile)
    some = [Layer(profile, window_of(profile)) for profile in profiles]
    # Full attention may serve a windowed layer too: the step reads no more than the window.
    windows = [one.window for one in some if one.window]
    some += [Layer(one.profile, window) for one in some for window in windows if not one.window]

    def test(drawn: tuple[list[Layer], list[int], int]) -> None:
        layers, lengths, steps = drawn
        run, layout = layout_of(ctx, Model.of(layers))
        make = maker(ctx.profile, layout)
        run.imports += make.imports
        requests = Requests(run, layers, lengths, blames=False)
        for _ in range(steps):
            line = f"step = {make.called})"
            requests.step(run.call(line, lambda: make(layout, requests.caches)))

    kinds = st.lists(st.sampled_from([Layer(None), *some]), min_size=1, max_size=4)
    ctx.for_all(
        st.tuples(kinds.filter(lambda d: any(x.profile for x in d)), LENGTHS, st.integers(1, 3)),
        test,
        fraction=0.5,
    )


@check("DEC-6", needs=("UPD-1",), skip=lacks("get_kv"))
def senseless_windows_are_refused(ctx: Context) -> None:
    def test(window: int) -> None:
        run = ctx.run(masks=False)
        run.step(Ask(3))
        line = f"keys, values = cache.get_kv({window})"
        error = run.attempt(line, lambda: run.cache.get_kv(window))
        if not isinstance(error, ValueError):
            run.fail(
                f"get_kv({window}) is not refused",
                expected="ValueError",
                observed="an answer" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no ValueError')"],
            )

    ctx.for_each((0, -1), test)
