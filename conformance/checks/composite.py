"""Checks of the composite contract: a cache of caches."""

from __future__ import annotations

import inspect
from typing import Any

import mlx.core as mx

from conformance.engine import Context, NotApplicable, check
from conformance.helpers import arrays
from conformance.trace import Run, plain
from kvproto import is_storage_backed


def children(run: Run) -> list[Any]:
    return list(run.read("cache.caches", lambda: run.cache.caches))


def filled(ctx: Context, count: int = 4) -> Run:
    """A composite whose children hold tokens, or set slots."""
    run = ctx.run(masks=False)
    dims = ctx.dims(key_dim=64, value_dim=64)
    run.dims = dims
    for index, child in enumerate(children(run)):
        ids = run.log.append(count)  # its own, so that children that change places are told apart
        if is_storage_backed(child):
            run.call(
                f"cache.caches[{index}].update_and_fetch(*tokens({ids}))",
                lambda c=child, i=ids: c.update_and_fetch(*run.tokens(i)),  # type: ignore[misc]
            )
        elif hasattr(child, "__setitem__"):
            run.lines.append(f"cache.caches[{index}][0] = mx.ones((1, 3))")
            child[0] = mx.ones((1, 3))
    return run


@check("COMP-1")
def trims_all_or_none(ctx: Context) -> None:
    run = filled(ctx)
    ctx.tried += 1
    own = children(run)
    if not own:
        raise NotApplicable("was constructed without children (COMP-4)")
    wanted = all(child.is_trimmable() for child in own if hasattr(child, "is_trimmable"))
    wanted = wanted and all(hasattr(child, "trim") for child in own)
    said = bool(run.read("cache.is_trimmable()", run.cache.is_trimmable))
    if said and not wanted:
        run.fail(
            "is_trimmable() is True although a child is not trimmable",
            expected="False",
            observed="True",
            code=["assert not cache.is_trimmable()"],
        )
    if not said:
        return
    removed = run.call("trimmed = cache.trim(2)", lambda: run.cache.trim(2))
    offsets = [plain(child.offset) for child in own if hasattr(child, "offset")]
    if removed != 2 or any(offset not in (2, [2]) for offset in map(_number, offsets)):
        run.fail(
            "trim(2) does not trim every child by 2",
            expected="2, all children at offset 2",
            observed=f"{removed}, children at {offsets}",
            code=["assert [c.offset for c in cache.caches] == [2] * len(cache.caches)"],
        )


def _number(value: Any) -> Any:
    rows = getattr(value, "rows", None)
    return [int(n) for n in rows] if rows is not None else value


@check("COMP-2")
def forwards_to_every_child(ctx: Context) -> None:
    run = filled(ctx)
    ctx.tried += 1
    own = children(run)
    members = ctx.profile.capabilities.members
    if "state" in members:
        state = run.read("cache.state", lambda: run.cache.state)
        held = {plain_bytes(array) for array in arrays(state)}
        for index, child in enumerate(own):
            lost = [a for a in arrays(child.state) if plain_bytes(a) not in held]
            if lost:
                run.fail(
                    f"state leaves out arrays of child {index}",
                    expected="every array of every child",
                    observed=f"an array of shape {lost[0].shape} is missing",
                    code=[
                        f"print(cache.state, cache.caches[{index}].state)",
                        "raise SystemExit(1)",
                    ],
                )
    if "nbytes" in members:
        total = sum(child.nbytes for child in own)
        got = run.read("cache.nbytes", lambda: run.cache.nbytes)
        if got != total:
            run.fail(
                "nbytes is not the sum over the children",
                expected=str(total),
                observed=repr(got),
                code=["assert cache.nbytes == sum(c.nbytes for c in cache.caches)"],
            )
    if "empty" in members and own and run.read("cache.empty()", run.cache.empty) is not False:
        run.fail(
            "empty() is not False although children hold tokens",
            expected="False",
            observed="True",
            code=["assert cache.empty() is False"],
        )
    if ctx.profile.restores and "from_state" in members:
        _restores(run, own)


def _restores(run: Run, own: list[Any]) -> None:
    cls = type(run.cache)
    older = "meta_state" in run.profile.capabilities.members
    older = older and len(inspect.signature(cls.from_state).parameters) > 1
    shown = "cache.state, cache.meta_state" if older else "cache.state"
    arguments = (run.cache.state, run.cache.meta_state) if older else (run.cache.state,)
    made = run.call(f"made = type(cache).from_state({shown})", lambda: cls.from_state(*arguments))
    got = [type(child) for child in made.caches]
    if got != [type(child) for child in own]:
        run.fail(
            "a restored composite has children of other classes",
            expected=str([type(child).__name__ for child in own]),
            observed=str([kind.__name__ for kind in got]),
            code=["assert list(map(type, made.caches)) == list(map(type, cache.caches))"],
        )
    for index, (one, other) in enumerate(zip(own, made.caches, strict=True)):
        if plain(getattr(one, "offset", None)) != plain(getattr(other, "offset", None)):
            run.fail(
                f"child {index} of a restored composite is at another offset",
                expected=repr(plain(one.offset)),
                observed=repr(plain(other.offset)),
                code=[f"assert made.caches[{index}].offset == cache.caches[{index}].offset"],
            )


def plain_bytes(array: mx.array) -> tuple[Any, ...]:
    snapshot = plain(array)
    return (snapshot.dtype, snapshot.rows.shape, snapshot.rows.tobytes())


@check("COMP-3")
def claims_nothing_of_its_own(ctx: Context) -> None:
    ctx.tried += 1
    own = {"offset", "make_mask", "update_and_fetch", "bits"} & ctx.profile.capabilities.members
    if own:
        name = sorted(own)[0]
        ctx.run(masks=False).fail(
            f"the container itself has {name}, which consumers dispatch on",
            expected=f"no {name}",
            observed="there",
            code=[f"assert not hasattr(cache, {name!r})"],
        )


@check("COMP-4")
def works_without_children(ctx: Context) -> None:
    ctx.tried += 1
    run = ctx.run(masks=False)
    cls = type(run.cache)
    try:
        run.cache = cls()
    except TypeError as error:
        raise NotApplicable(f"cannot be constructed without children: {error}") from None
    if children(run):
        raise NotApplicable("its constructor makes the children itself")
    run.lines.append("cache = type(cache)()")
    members = ctx.profile.capabilities.members
    for name, expected in (("trim", 0), ("size", 0), ("empty", True)):
        if name not in members:
            continue
        arguments = (1,) if name == "trim" else ()
        line = f"cache.{name}({'1' if arguments else ''})"
        got = run.call(f"got = {line}", lambda n=name, a=arguments: getattr(run.cache, n)(*a))  # type: ignore[misc]
        if got != expected:
            run.fail(
                f"{line} without children is not {expected}",
                expected=str(expected),
                observed=repr(got),
                code=[f"assert got == {expected}, got"],
            )
