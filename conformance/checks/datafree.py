"""Checks of the data-free contract: caches that hold no data and raise on update_and_fetch."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import mlx.core as mx
from hypothesis import strategies as st

from conformance.checks._common import compare_seen
from conformance.engine import Context, check
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.trace import Ask, Operation, Run, mask_call, plain, reachable_arrays
from kvproto import DataFreeEvidence


def no_update(profile: Profile) -> str | None:
    if "update_and_fetch" in profile.capabilities.members:
        return None
    return "has no update_and_fetch, as FREE-1 allows"


def no_state(profile: Profile) -> str | None:
    return None if "state" in profile.capabilities.members else "has no state"


def no_offset(profile: Profile) -> str | None:
    return None if "offset" in profile.capabilities.members else "has no offset"


def no_mask(profile: Profile) -> str | None:
    return None if "make_mask" in profile.capabilities.members else "has no make_mask"


INPUTS = st.tuples(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 8),
    st.sampled_from(("float32", "float16", "bfloat16")),
)
"""Batch, heads, tokens, head dim and dtype of what a caller in error passes."""


def call_it(run: Run, sizes: tuple[int, int, int, int, str]) -> Exception | None:
    """Call update_and_fetch as a caller in error does; what it raised."""
    batch, heads, count, dim, dtype = sizes
    rows = mx.zeros((batch, heads, count, dim), getattr(mx, dtype))
    run.lines.append(f"rows = mx.zeros(({batch}, {heads}, {count}, {dim}), mx.{dtype})")
    return run.attempt(
        "cache.update_and_fetch(rows, rows)", lambda: run.cache.update_and_fetch(rows, rows)
    )


@check("FREE-1", skip=no_update)
def update_raises(ctx: Context) -> None:
    def test(sizes: tuple[int, int, int, int, str]) -> None:
        run = ctx.run()
        error = call_it(run, sizes)
        name = type(run.cache).__name__
        if not isinstance(error, RuntimeError):
            run.fail(
                "update_and_fetch of a cache without data does not raise RuntimeError",
                expected="RuntimeError",
                observed="no exception" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no RuntimeError')"],
            )
        if name not in str(error):
            run.fail(
                "the message does not name the class",
                expected=f"a message with {name}",
                observed=f"{type(error).__name__}: {error}",
                code=[f"raise AssertionError('{name} is not named')"],
            )

    ctx.for_all(INPUTS, test, fraction=0.5)


@check("FREE-2", needs=("FREE-1",), skip=no_update)
def failed_update_changes_nothing(ctx: Context) -> None:
    def test(drawn: tuple[tuple[int, int, int, int, str], int]) -> None:
        sizes, offset = drawn
        run = ctx.run()
        if offset and "offset" in run.profile.capabilities.members:
            run.append(offset)
        before, at = run.observe(), len(run.lines)
        call_it(run, sizes)
        run.unchanged("an update_and_fetch that raised", before, at)

    ctx.for_all(st.tuples(INPUTS, st.integers(0, 9)), test, fraction=0.5)


@check("FREE-3", needs=("STATE-1",), skip=no_state)
def state_is_empty(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                run.apply([operation])
            state = run.read("cache.state", lambda: run.cache.state)
            if not isinstance(state, (tuple, list)) or len(state):
                run.fail(
                    "the state of a cache without data is not empty",
                    expected="()",
                    observed=repr(plain(state))[:80],
                    code=["assert len(cache.state) == 0, cache.state"],
                )
            run.call("mx.eval(*cache.state)", lambda: mx.eval(*run.cache.state))

    ctx.for_traces(Shape(), test, fraction=0.3)


@check("FREE-4", needs=("MASK-1", "MASK-2"), skip=no_mask)
def masks_are_those_of_a_storing_cache(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            compare_seen(step)

    ctx.for_traces(Shape(), test)


@check("FREE-5", needs=("FREE-1",), skip=no_offset)
def only_the_owner_moves_offset(ctx: Context) -> None:
    def test(offset: int) -> None:
        run = ctx.run()
        run.call(f"cache.offset = {offset}", lambda: setattr(run.cache, "offset", offset))
        actions: list[tuple[str, Any]] = [
            ("reading state", lambda: getattr(run.cache, "state", None))
        ]
        if run.has_mask:
            ask = Ask(3)
            actions.append((mask_call(ask), lambda: run.ask_mask(ask)))
        if "update_and_fetch" in run.profile.capabilities.members:
            actions.append(("a failed update", lambda: call_it(run, (1, 2, 3, 4, "float32"))))
        actions.insert(0, ("writing it", lambda: None))
        for what, action in actions:
            if what == "reading state":
                run.lines.append("cache.state")
            elif what.startswith("cache."):
                run.lines.append(what)
            action()
            if run.offset_value() != offset:
                run.fail(
                    "offset is not what was written"
                    if not what.startswith(("read", "cache", "a "))
                    else f"{what} moves offset",
                    expected=str(offset),
                    observed=str(run.offset_value()),
                    code=[f"assert cache.offset == {offset}, cache.offset"],
                )

    ctx.for_each((0, 1, 7, 300), test)


@check("FREE-6")
def no_array_is_held(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
            if "update_and_fetch" in run.profile.capabilities.members:
                call_it(run, (1, 2, 1, 4, "float32"))
            held = [array for array in reachable_arrays(run.cache) if array.size > 1]
            if held:
                run.fail(
                    "a cache without data holds an array",
                    expected="no array reachable from it",
                    observed=f"an array of shape {held[0].shape}",
                    code=["raise AssertionError(vars(cache))"],
                )
        if "nbytes" in run.profile.capabilities.members:
            nbytes = run.read("cache.nbytes", lambda: run.cache.nbytes)
            if nbytes != 0:
                run.fail(
                    "nbytes of a cache without data is not 0",
                    expected="0",
                    observed=repr(nbytes),
                    code=["assert cache.nbytes == 0, cache.nbytes"],
                )

    ctx.for_traces(Shape(steps=3), test, fraction=0.2)


@check("FREE-7", skip=no_update)
def recognisable_before_the_call(ctx: Context) -> None:
    ctx.tried += 1
    if ctx.profile.capabilities.data_free is DataFreeEvidence.CODE:
        ctx.run().fail(
            "nothing declares that it holds no data; only the code of update_and_fetch shows it",
            expected="update_and_fetch(...) -> Never, or kvproto.register_data_free(cls)",
            observed="no annotation and no registration",
            code=[
                "from typing import NoReturn",
                "returns = type(cache).update_and_fetch.__annotations__.get('return')",
                "assert returns in (NoReturn, 'NoReturn', 'Never'), returns",
            ],
        )


@check("FREE-8")
def queries_are_truthful(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        members = run.profile.capabilities.members
        for name, expected in (("empty", True), ("size", 0)):
            if name in members:
                got = run.read(f"cache.{name}()", getattr(run.cache, name))
                if got != expected:
                    run.fail(
                        f"{name}() of a cache without data is not {expected}",
                        expected=str(expected),
                        observed=repr(got),
                        code=[f"assert cache.{name}() == {expected}, cache.{name}()"],
                    )
        if "is_trimmable" in members and run.log.length:
            said = run.read("cache.is_trimmable()", run.cache.is_trimmable)
            if said and "trim" not in members:
                run.fail(
                    "is_trimmable() is True, and there is no trim",
                    expected="False, or a trim that moves offset",
                    observed="True",
                    code=["assert not cache.is_trimmable()"],
                )
            if said and "offset" in members:
                before = run.offset_value()
                removed = run.call("trimmed = cache.trim(1)", lambda: run.cache.trim(1))
                if removed != 1 or run.offset_value() != before - 1:
                    run.fail(
                        "is_trimmable() is True, and trim(1) does not move offset back by 1",
                        expected=f"1, offset {before - 1}",
                        observed=f"{removed}, offset {run.offset_value()}",
                        code=["raise AssertionError((trimmed, cache.offset))"],
                    )

    ctx.for_traces(Shape(steps=3), test, fraction=0.2)


@check("FREE-9")
def survives_in_a_list(ctx: Context) -> None:
    def test(offset: int) -> None:
        run = ctx.run()
        if offset and "offset" in run.profile.capabilities.members:
            run.append(offset)
        for way, line, carry in (
            ("deepcopy", "copy.deepcopy([cache, None, cache])", copy.deepcopy),
            ("pickle", "pickle.loads(pickle.dumps([cache, None, cache]))", _pickled),
        ):
            run.lines += [f"import {line.partition('.')[0]}"]
            entries: Any = run.call(
                f"entries = {line}", partial(carry, [run.cache, None, run.cache])
            )
            same = len(entries) == 3 and all(
                type(entry) is type(run.cache)
                and plain(getattr(entry, "offset", None)) == run.offset_value()
                for entry in (entries[0], entries[2])
            )
            if not same:
                run.fail(
                    f"a list with it does not survive {way}",
                    expected=f"three entries, offset {run.offset_value()}",
                    observed=", ".join(type(entry).__name__ for entry in entries),
                    code=["assert entries[2].offset == cache.offset, entries"],
                )

    ctx.for_each((0, 5), test)


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
