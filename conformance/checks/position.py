"""Checks of the position contract: ``offset``."""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral
from typing import Any

import mlx.core as mx

from conformance.checks._common import Held, data_free
from conformance.engine import Context, check
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.trace import Operation, Run, Step


def read_offset(run: Run) -> Any:
    """The offset of the live cache."""
    return run.read("cache.offset", lambda: run.cache.offset)


def offset_is(run: Run, expected: list[int], when: str, step: Step | None = None) -> None:
    """Fail unless offset says, for each row, where the next token stands."""
    value = read_offset(run)
    numbers = value.tolist() if isinstance(value, mx.array) else value
    wanted: Any = expected if isinstance(numbers, list) else expected[0]
    if isinstance(numbers, (Integral, list)) and numbers == wanted:
        return
    method = ".tolist()" if isinstance(value, mx.array) else ""
    run.fail(
        f"offset is not where the next token stands {when}",
        expected=str(wanted),
        observed=repr(numbers),
        code=[f"assert cache.offset{method} == {wanted}, cache.offset"],
    )


def owner_moves_offset(profile: Profile) -> str | None:
    return "data-free: its owner moves offset (FREE-5)" if data_free(profile) else None


@check("POS-1")
def starts_at_zero(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    offset_is(run, run.log.offsets, "in a new cache")


@check("POS-2", needs=("UPD-1", "POS-1"), skip=owner_moves_offset)
def append_raises_offset(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
            if "state" in run.profile.capabilities.members:
                with suppress(Exception):  # STATE-1's business
                    mx.eval(run.cache.state)
            offset_is(run, run.log.offsets, f"after {run.log.length} tokens")

    ctx.for_traces(Shape(windows=False, arrays=False), test, masks=False)


@check("POS-3", needs=("UPD-1", "POS-1", "POS-2"), skip=owner_moves_offset)
def offset_moves_at_the_call(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            assert not hasattr(operation, "trim")
            run.step(operation, evaluate=False)  # type: ignore[arg-type]
            offset_is(run, run.log.offsets, "right after the call, before anything is evaluated")

    ctx.for_traces(Shape(steps=4, windows=False, arrays=False), test, masks=False, fraction=0.5)


@check("POS-4", needs=("UPD-1",), skip=owner_moves_offset)
def earlier_offset_keeps_its_value(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        held = Held(run, "an offset that was read earlier")
        for operation in operations:
            held.keep("cache.offset", read_offset(run))
            run.apply([operation])
            held.check()

    ctx.for_traces(Shape(windows=False, arrays=False, trims=True), test, masks=False)


@check("POS-5", needs=("UPD-1",))
def offset_has_one_type(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        first = _kind(run)
        for operation in operations:
            run.apply([operation])
            later = _kind(run)
            if later != first:
                run.fail(
                    "the type of offset changes",
                    expected=first,
                    observed=later,
                    code=[
                        "kind = str(getattr(cache.offset, 'dtype', type(cache.offset).__name__))",
                        f"assert kind == {first.rpartition(' ')[2]!r}, kind",
                    ],
                )

    ctx.for_traces(Shape(windows=False, arrays=False, trims=True), test, masks=False, fraction=0.5)


def _kind(run: Run) -> str:  # noqa: RET503 (run.fail does not return)
    """The type of offset in words; fails where it is none that the contract allows."""
    value = read_offset(run)
    if isinstance(value, int) and not isinstance(value, bool):
        return "int"
    if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.integer):
        if value.shape == (run.dims.batch,):
            return f"array of {value.dtype}"
        if value.ndim == 0 and run.profile.claims.captured:
            return f"0-d array of {value.dtype}"
    shape = (
        f" of shape {value.shape} and dtype {value.dtype}" if isinstance(value, mx.array) else ""
    )
    run.fail(
        "offset is neither an int nor one integer for each row",
        expected=f"int, or an integer mx.array of shape ({run.dims.batch},)",
        observed=f"{type(value).__name__}{shape}",
        code=["assert isinstance(cache.offset, int), type(cache.offset)"],
    )


@check("POS-6", needs=("UPD-1", "POS-1"), skip=owner_moves_offset)
def offset_stays_in_range(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
            value = read_offset(run)
            numbers = value.tolist() if isinstance(value, mx.array) else value
            listed = numbers if isinstance(numbers, list) else [numbers] * run.dims.batch
            for padding, number in zip(run.log.left_padding, listed, strict=True):
                if not -padding <= number <= run.log.length - padding:
                    run.fail(
                        "offset leaves the range of what was logged",
                        expected=f"{-padding} to {run.log.length - padding}",
                        observed=str(numbers),
                        code=[
                            f"low, high = {-padding}, {run.log.length - padding}",
                            "assert low <= min(mx.array(cache.offset).reshape(-1).tolist())",
                            "assert max(mx.array(cache.offset).reshape(-1).tolist()) <= high",
                        ],
                    )

    ctx.for_traces(Shape(windows=False, arrays=False, trims=True), test, masks=False)


def does_not_claim_reuse(profile: Profile) -> str | None:
    if data_free(profile):
        return "data-free: its owner moves offset (FREE-5)"
    return None if profile.claims.rewinds else "does not claim `rewinds` (offset may be lowered)"


@check("POS-7", needs=("UPD-1", "UPD-2"), skip=does_not_claim_reuse)
def lowering_offset_trims(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        target = run.log.length // 2
        run.call(f"cache.offset = {target}", lambda: setattr(run.cache, "offset", target))
        run.log.trim(run.log.length - target)
        step = run.apply(operations[:1]).steps[-1]
        got = [int(number) for number in step.key_ids[0, 0]]
        if got != step.ids:
            run.fail(
                "rows above a lowered offset come back",
                expected=f"tokens {step.ids}",
                observed=f"tokens {got}",
                code=[f"assert numbers(keys) == {step.ids}, numbers(keys)"],
            )

    ctx.for_traces(Shape(windows=False, arrays=False), test, masks=False)
