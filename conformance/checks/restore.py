"""Checks of the restore contract, in whichever dialect of state the class speaks."""

from __future__ import annotations

import copy
import inspect
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
from hypothesis import strategies as st

from conformance.checks.copying import cannot_be_told_apart, fork, hand_over
from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, check
from conformance.strategies import Shape, traces
from conformance.subject import Profile
from conformance.trace import Ask, Operation, Run, plain


def some(ctx: Context) -> Shape:
    """Short traces; with trims where trimming itself is right."""
    trims = ctx.works("TRIM-1", "TRIM-6")
    return Shape(tokens=32, steps=5, windows=False, arrays=False, trims=trims)


class Dialect:
    """How one class is restored, told by its surface and not by a version."""

    def __init__(self, run: Run) -> None:
        members = run.profile.capabilities.members
        self.meta = "meta_state" in members
        self.from_state = "from_state" in members
        if self.from_state:
            self.meta = self.meta and _takes_two(type(run.cache).from_state)

    def read(self, cache: Any) -> tuple[Any, Any]:
        return cache.state, cache.meta_state if self.meta else None

    def restore(self, run: Run, cache: Any, state: Any, meta: Any) -> Any:
        """A new cache from what :meth:`read` gave."""
        if self.from_state:
            cls = type(cache)
            return cls.from_state(state, meta) if self.meta else cls.from_state(state)
        made = run.profile.subject.factory()
        self.assign(made, state, meta)
        return made

    def assign(self, cache: Any, state: Any, meta: Any) -> None:
        cache.state = state
        if self.meta:
            cache.meta_state = meta

    def line(self, run: Run, source: str = "cache") -> str:
        """The program's line for a round trip."""
        if self.from_state:
            meta = f", {source}.meta_state" if self.meta else ""
            return f"cache = type({source}).from_state({source}.state{meta})"
        call = run.profile.subject.call or "..."
        meta = f", {source}.meta_state" if self.meta else ""
        target = "made.state, made.meta_state" if self.meta else "made.state"
        return f"made = {call}; {target} = {source}.state{meta}; cache = made"


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters) >= 2


def restored(run: Run) -> Run:
    """The run, forked onto a cache restored from its state."""
    dialect = Dialect(run)
    line = dialect.line(run)
    cache = run.read(line, lambda: dialect.restore(run, run.cache, *dialect.read(run.cache)))
    return fork(run, line, cache)


def goes_on(run: Run, operations: list[Operation]) -> None:
    for operation in [*operations, Ask(1)]:
        run.apply([operation])
        if isinstance(operation, Ask):
            whole(run.steps[-1])


@check("REST-1", needs=(*NEEDS, "REST-2"))
def goes_on_where_it_stood(ctx: Context) -> None:
    drawn_traces = traces(ctx.profile, some(ctx))

    def test(drawn: tuple[list[Operation], list[Operation], list[Operation]]) -> None:
        first, second, third = drawn
        run = ctx.run().apply(first)
        if not run.log.ids:
            return  # REST-3
        run = cannot_be_told_apart(run, restored(run))
        goes_on(run, second)
        goes_on(cannot_be_told_apart(run, restored(run)), third)

    ctx.for_all(st.tuples(drawn_traces, drawn_traces, drawn_traces), test, fraction=0.5)


QUESTIONS = ("size", "empty", "is_trimmable", "keys_and_values", "finalize")


@check("REST-2", needs=("UPD-1", "MASK-1", "REC-1"))
def is_usable_in_every_method(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        if not run.log.ids:
            return
        other = restored(run)
        members = run.profile.capabilities.members
        for name in QUESTIONS:
            if name in members and _raises(run, name) is None:
                line = f"cache.{name}()"
                other.call(line, getattr(other.cache, name))
                other.lines.pop()
        if "nbytes" in members and _guarded_nbytes(run):
            other.read("cache.nbytes", lambda: other.cache.nbytes)
        for name, arguments in CALLS.items():
            # Each on a cache of its own, for it may change it; the original says what is legal.
            if name in members and _accepts(run.cache, name, arguments):
                fresh = restored(run)
                shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
                fresh.call(
                    f"cache.{name}({shown})", partial(getattr(fresh.cache, name), **arguments)
                )
        other.step(Ask(2))
        other.step(Ask(1))
        other.trim(1)
        if _deep_copies(run.cache):
            other.call("copy.deepcopy(cache)", lambda: copy.deepcopy(other.cache))

    ctx.for_traces(some(ctx), test, fraction=0.3)


CALLS: dict[str, dict[str, int]] = {
    "reset": {},
    "to_quantized": {"group_size": 32, "bits": 8},
    "maybe_trim_front": {},
}


def _deep_copies(cache: Any) -> bool:
    try:
        copy.deepcopy(cache)
    except Exception:
        return False  # COPY-1
    return True


def _guarded_nbytes(run: Run) -> bool:
    try:
        return run.cache.nbytes is not None
    except Exception:
        return False  # MEAS-3


def _accepts(cache: Any, name: str, arguments: dict[str, int]) -> bool:
    """Whether a copy of the original answers the call, so that a restored cache has to."""
    try:
        getattr(copy.deepcopy(cache), name)(**arguments)
    except Exception:
        return False
    return True


def _raises(run: Run, name: str) -> Exception | None:
    """What a method of the original raises: that is not a fault of restoring."""
    try:
        getattr(run.cache, name)()
    except Exception as error:
        return error
    return None


@check("REST-3", needs=(*NEEDS, "STATE-1"))
def empty_round_trips(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        goes_on(restored(run), operations)

    ctx.for_traces(Shape(tokens=24, steps=3, windows=False, arrays=False), test, fraction=0.3)


@check("REST-4", needs=("UPD-1", "REC-1"))
def comes_back_as_it_was(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        other = restored(run)
        if type(other.cache) is not type(run.cache):
            other.fail(
                "a restored cache is of another class",
                expected=type(run.cache).__name__,
                observed=type(other.cache).__name__,
                code=["assert type(cache) is type(other)"],
            )
        dialect = Dialect(run)
        before = _typed(plain(dialect.read(run.cache)))
        after = _typed(plain(dialect.read(other.cache)))
        if before != after:
            other.fail(
                "the state of a restored cache is not the state that it was restored from",
                expected=_different(before, after)[0],
                observed=_different(before, after)[1],
                code=["print(other.state, cache.state)", "raise AssertionError('not equal')"],
            )

    for dtype in (ctx.profile.claims.dtypes[0], ctx.profile.claims.dtypes[-1]):
        ctx.for_traces(some(ctx), test, masks=False, dims=ctx.dims(dtype=dtype), fraction=0.3)


def _typed(tree: Any) -> Any:
    """A tree in which True, 1 and 1.0 differ; tuples and lists do not."""
    if isinstance(tree, dict):
        return {key: _typed(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_typed(value) for value in tree]
    return (type(tree).__name__, tree)


def _different(one: Any, other: Any) -> tuple[str, str]:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            if left != right:
                return _different(left, right)
    return str(one)[:80], str(other)[:80]


@check("REST-5", needs=(*NEEDS, "STATE-3", "REST-1"))
def survives_a_file(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        dialect = Dialect(run)
        state, meta = dialect.read(run.cache)
        line = f"{dialect.line(run)}  # its arrays by way of a safetensors file"
        cache = run.read(
            line,
            lambda: dialect.restore(run, run.cache, through_a_file(state), as_stored(meta)),
        )
        goes_on(fork(run, line, cache), [Ask(1), Ask(2)])

    ctx.for_traces(some(ctx), test, fraction=0.3)


def through_a_file(tree: Any) -> Any:
    """A state as it comes back from disk: its arrays by safetensors, the rest by JSON."""
    arrays: dict[str, mx.array] = {}

    def stripped(value: Any) -> Any:
        if isinstance(value, mx.array):
            name = str(len(arrays))
            # safetensors knows no empty arrays; consumers store those by shape and dtype.
            arrays[name] = value if value.size else mx.zeros((1,), value.dtype)
            return {"array": name, "shape": list(value.shape)}
        if isinstance(value, (tuple, list)):
            return [stripped(item) for item in value]
        if isinstance(value, dict):
            return {"dict": {key: stripped(item) for key, item in value.items()}}
        return {"value": value}

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        if "array" in value:
            stored = loaded[value["array"]]
            return stored if 0 not in value["shape"] else mx.zeros(value["shape"], stored.dtype)
        if "dict" in value:
            return {key: filled(item) for key, item in value["dict"].items()}
        return value["value"]

    structure = json.loads(json.dumps(stripped(tree)))
    if not arrays:
        return filled(structure)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "state.safetensors")
        mx.save_safetensors(path, arrays)
        loaded: Any = mx.load(path)
        mx.eval(list(loaded.values()))
    return filled(structure)


def as_stored(meta: Any) -> Any:
    """meta_state as it comes back: strings, tuples as lists."""
    return json.loads(json.dumps(meta)) if meta is not None else None


@check("REST-6", needs=(*NEEDS, "REST-1"))
def restored_caches_are_independent(ctx: Context) -> None:
    drawn_traces = traces(ctx.profile, some(ctx))

    def test(drawn: tuple[list[Operation], list[Operation], list[Operation]]) -> None:
        before, first, second = drawn
        run = ctx.run().apply(before)
        if not run.log.ids:
            return
        other = restored(run)
        goes_on(hand_over(other, run), first)
        goes_on(hand_over(run, other), second)
        whole(hand_over(other, run).step(Ask(1)))

    ctx.for_all(st.tuples(drawn_traces, drawn_traces, drawn_traces), test, fraction=0.5)


def no_pending(profile: Profile) -> str | None:
    if {"prepare", "finalize"} <= profile.capabilities.members:
        return "has pending padding; a check of its state in between is not written yet"
    return "has no prepare and finalize"


@check("REST-7", skip=no_pending)
def pending_padding_is_carried(ctx: Context) -> None:
    raise AssertionError("skipped always")


def cannot_assign(profile: Profile) -> str | None:
    cache = profile.subject.factory()
    stored = inspect.getattr_static(cache, "state", None)
    read_only = isinstance(stored, property) and stored.fset is None
    return "its state cannot be assigned" if read_only else None


@check("REST-8", needs=(*NEEDS, "REST-1"), skip=cannot_assign)
def assigning_state_replaces_everything(ctx: Context) -> None:
    drawn_traces = traces(ctx.profile, some(ctx))

    def test(drawn: tuple[list[Operation], list[Operation]]) -> None:
        stale, live = drawn
        run = ctx.run().apply(live)
        if not run.log.ids:
            return
        used = ctx.run()
        used.log._next = 100  # so that a row that stays behind is told from a new one
        used.apply(stale)
        dialect = Dialect(run)
        call = run.profile.subject.call or "..."
        run.lines += ["source = cache", f"cache = {call}"]
        run.lines += used.lines
        line = "cache.state = source.state"
        if dialect.meta:
            line += "; cache.meta_state = source.meta_state"
        run.call(line, lambda: dialect.assign(used.cache, *dialect.read(run.cache)))
        source, run.cache = run.cache, used.cache
        waiting = fork(run, "", source)
        waiting.lines = run.lines
        run.lines.append("other = source")
        cannot_be_told_apart(waiting, run)
        goes_on(run, [Ask(1), Ask(2)])

    much: list[Operation] = [Ask(2), Ask(2)]
    little: list[Operation] = [Ask(1)]
    ctx.for_each([(much, little)], test)
    ctx.for_all(st.tuples(drawn_traces, drawn_traces), test, fraction=0.5)
