"""Checks of the recurrent contract: slots, ``lengths``, ``left_padding``, ``advance``."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
from hypothesis import strategies as st

from conformance import parts
from conformance.engine import Context, NotApplicable, check
from conformance.graph import pending
from conformance.subject import Profile
from conformance.trace import Run, plain, reachable_arrays


def slots_of(run: Run) -> list[Any]:
    """Every slot, as a model that unpacks the cache reads them."""
    found: list[Any] = run.read("list(cache)", lambda: parts.slots_of(run.cache))
    if len(found) == parts.MOST_SLOTS:
        run.fail(
            f"slot {parts.MOST_SLOTS - 1} can be read, so a model that unpacks it never ends",
            expected="IndexError past the last slot",
            observed="no exception",
            code=[f"cache[{parts.MOST_SLOTS - 1}]", "raise AssertionError('no IndexError')"],
        )
    return found


def fill(run: Run) -> None:
    for index in range(len(slots_of(run))):
        line = f"cache[{index}] = mx.full((2, 3), {index + 1.0})"
        value = mx.full((2, 3), float(index + 1))
        run.call(line, partial(run.cache.__setitem__, index, value))


@check("REC-1")
def slots_start_empty(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    slots = slots_of(run)
    for index, slot in enumerate(slots):
        if slot is not None:
            run.fail(
                f"slot {index} of a new cache is not None",
                expected="None",
                observed=type(slot).__name__,
                code=[f"assert cache[{index}] is None"],
            )
    fill(run)
    after = slots_of(run)
    if len(after) != len(slots) or any(slot is None for slot in after):
        run.fail(
            "assigning the slots changes their number",
            expected=f"{len(slots)} slots, all set",
            observed=f"{len(after)} slots",
            code=[f"assert len(list(cache)) == {len(slots)}"],
        )


def padded(run: Run, left: list[int] | None, lengths: list[int] | None) -> bool:
    """Announce padding as engines do; False where the class has no way to."""
    cache = run.cache
    if lengths is not None:
        if not hasattr(cache, "prepare"):
            return False
        right = [max(lengths) - length for length in lengths]
        run.call(
            f"cache.prepare(lengths={lengths}, right_padding={right})",
            lambda: cache.prepare(lengths=lengths, right_padding=right),
        )
    if left is not None:
        run.call(
            f"cache.left_padding = mx.array({left})",
            lambda: setattr(cache, "left_padding", mx.array(left)),
        )
    return True


PADDING = st.none() | st.lists(st.integers(0, 5), min_size=2, max_size=2)


def numbers(run: Run, name: str) -> list[int] | None:
    value = run.read(f"cache.{name}", lambda: getattr(run.cache, name))
    if value is None:
        return None
    if not isinstance(value, mx.array) or value.ndim != 1:
        run.fail(
            f"{name} is neither None nor an array of one number a row",
            expected="None or shape (B,)",
            observed=repr(plain(value))[:60],
            code=[f"assert cache.{name} is None or cache.{name}.ndim == 1"],
        )
    result: list[int] = value.tolist()  # type: ignore[assignment]
    return result


@check("REC-2")
def advance_counts_padding_down(ctx: Context) -> None:
    def test(drawn: tuple[list[int] | None, list[int] | None, list[int]]) -> None:
        left, lengths, counts = drawn
        run = ctx.run(masks=False)
        expected = {
            "left_padding": numbers(run, "left_padding"),
            "lengths": numbers(run, "lengths"),
        }
        if not padded(run, left, lengths):
            return
        if left is not None:
            expected["left_padding"] = left
        if lengths is not None:
            expected["lengths"] = lengths
        for count in counts:
            held = {name: getattr(run.cache, name) for name in expected}
            before = {name: plain(value) for name, value in held.items()}
            if "advance" not in ctx.profile.capabilities.members:
                return
            run.call(f"cache.advance({count})", lambda c=count: run.cache.advance(c))  # type: ignore[misc]
            for name, start in expected.items():
                wanted = [number - count for number in start] if start is not None else None
                got = numbers(run, name)
                if got != wanted:
                    run.fail(
                        f"advance({count}) does not lower {name} by {count}",
                        expected=str(wanted),
                        observed=str(got),
                        code=[f"assert cache.{name}.tolist() == {wanted}, cache.{name}"],
                    )
                expected[name] = wanted
                if plain(held[name]) != before[name]:
                    run.fail(
                        f"advance({count}) changes an array of {name} that was read before",
                        expected=repr(before[name]),
                        observed=repr(plain(held[name])),
                        code=["raise AssertionError('changed in place')"],
                    )

    counts = st.lists(st.integers(1, 3), min_size=1, max_size=3)
    ctx.for_all(st.tuples(PADDING, PADDING, counts), test, fraction=0.5)


@check("REC-3", needs=("REC-1",))
def mask_shows_valid_positions(ctx: Context) -> None:
    def test(drawn: tuple[list[int] | None, list[int] | None, int]) -> None:
        left, lengths, count = drawn
        run = ctx.run(masks=False)
        fill(run)
        if not padded(run, left, lengths):
            return
        left = left if left is not None else numbers(run, "left_padding")
        lengths = lengths if lengths is not None else numbers(run, "lengths")
        rows = len(left or lengths or [0, 0])
        expected = [
            [
                (left is None or column >= left[row]) and (lengths is None or column < lengths[row])
                for column in range(count)
            ]
            for row in range(rows)
        ]
        mask = run.call(f"mask = cache.make_mask({count})", lambda: run.cache.make_mask(count))
        if mask is None:
            got: Any = [[True] * count] * rows
        elif isinstance(mask, mx.array) and mask.dtype == mx.bool_ and mask.ndim == 2:
            got = mask.tolist()
        else:
            got = repr(mask)
        if got != expected:
            run.fail(
                f"make_mask({count}) does not show the valid positions",
                expected=str(expected),
                observed=str(got)[:80],
                code=[f"assert mask is not None and mask.tolist() == {expected}, mask"],
            )

    ctx.for_all(st.tuples(PADDING, PADDING, st.integers(1, 6)), test, fraction=0.5)


@check("REC-4", needs=("REC-1",))
def is_not_trimmable(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    fill(run)
    if "is_trimmable" not in ctx.profile.capabilities.members:
        return
    if not run.read("cache.is_trimmable()", run.cache.is_trimmable):
        return
    before = [plain(slot) for slot in slots_of(run)]
    run.call("cache.trim(1)", lambda: run.cache.trim(1))
    if [plain(slot) for slot in slots_of(run)] == before:
        run.fail(
            "is_trimmable() is True, and trim(1) leaves the recurrent state as it was",
            expected="is_trimmable() False",
            observed="True",
            code=["assert not cache.is_trimmable()"],
        )


def no_state(profile: Profile) -> str | None:
    return None if "state" in profile.capabilities.members else "has no state"


@check("REC-5", needs=("REC-1",), skip=no_state)
def held_state_keeps_its_slots(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    fill(run)
    run.lines += ["held = cache.state", "then = [mx.array(a) for a in arrays(held)]"]
    held = run.cache.state
    before = plain(held)
    run.call("cache[0] = mx.zeros((2, 3))", lambda: run.cache.__setitem__(0, mx.zeros((2, 3))))
    if plain(held) != before:
        run.fail(
            "a state that was read earlier changed when a slot was assigned",
            expected="the state as it was",
            observed="the new slot",
            code=["assert all(map(mx.array_equal, then, arrays(held))), held"],
        )


@check("REC-6", needs=("REC-1",))
def no_graph_grows(ctx: Context) -> None:
    if "advance" not in ctx.profile.capabilities.members:
        raise NotApplicable("has no advance")
    run = ctx.run(masks=False)
    padded(run, [1, 2], None)
    sizes = []
    for _ in range(40):
        ctx.tried += 1
        fill(run)
        run.cache.advance(1)
        mx.eval(slots_of(run))
        sizes.append(pending(reachable_arrays(run.cache)).total())
    if sizes[-1] > sizes[len(sizes) // 2]:
        run.lines[:] = [
            "cache.left_padding = mx.array([1, 2])",
            "for _ in range(40):",
            "    cache[0] = mx.zeros((2, 3))",
            "    cache.advance(1)",
            "    mx.eval(cache[0])",
        ]
        run.fail(
            "the slots are evaluated every step, and the graph behind the counters grows",
            expected=f"{sizes[0]} pending operations at most",
            observed=f"{sizes[-1]} after {len(sizes)} steps",
            code=["raise AssertionError('the graph grows')"],
        )


@check("REC-7", needs=("REC-1",))
def measures_unset_slots(ctx: Context) -> None:
    members = ctx.profile.capabilities.members
    run = ctx.run(masks=False)
    ctx.tried += 1
    slots = slots_of(run)
    if "empty" in members:
        got = run.read("cache.empty()", run.cache.empty)
        if slots and got is not True:
            run.fail(
                "empty() of a new cache is not True",
                expected="True",
                observed=repr(got),
                code=["assert cache.empty() is True"],
            )
    if "nbytes" in members:
        run.read("cache.nbytes", lambda: run.cache.nbytes)
        if slots:
            run.lines.append("cache[0] = mx.zeros((2, 3))")
            run.cache[0] = mx.zeros((2, 3))
            got = run.read("cache.nbytes", lambda: run.cache.nbytes)
            if not isinstance(got, int) or got < 24:
                run.fail(
                    "nbytes leaves out the one slot that is set",
                    expected="at least 24",
                    observed=repr(got),
                    code=["assert cache.nbytes >= 24, cache.nbytes"],
                )
