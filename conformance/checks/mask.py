"""Checks of the mask contract: ``make_mask``."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from conformance.checks._common import compare_seen
from conformance.engine import Context, check
from conformance.program import listed
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.tags import to_numpy
from conformance.trace import Ask, Operation, Run, Step, mask_call, plain
from kvproto.visibility import Lossy, Sinks, SlidingWindow

FITS = ("UPD-1", "UPD-2", "MASK-1", "MASK-2", "MASK-8")


def without_mask(profile: Profile) -> str | None:
    return None if "make_mask" in profile.capabilities.members else "has no make_mask (MASK-12)"


def with_mask(profile: Profile) -> str | None:
    return "has make_mask" if "make_mask" in profile.capabilities.members else None


def steps_of(ctx: Context, shape: Shape, test: Callable[[Step], None]) -> None:
    """Try a property on every step of many traces."""

    def trace(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            test(step)

    ctx.for_traces(shape, trace)


@check("MASK-1", needs=("UPD-1",), skip=without_mask)
def answers_the_common_form(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility

    def on_empty(ask: Ask) -> None:
        run = ctx.run()
        run.call(f"mask = {mask_call(ask)}", lambda: run.ask_mask(ask))

    # A window that the cache can serve; beside sinks only its own means anything.
    window = min(2, getattr(visibility, "window", 2))
    if visibility.narrowed(window) is None:
        window = visibility.window if isinstance(visibility, Sinks) else window
    ctx.for_each(
        [
            Ask(n, asked, array)
            for n in (1, 3)
            for asked in (None, window)
            for array in (False, True)
        ],
        on_empty,
    )
    steps_of(ctx, Shape(), lambda step: None)


@check("MASK-2", needs=("POS-1", "UPD-1", "UPD-2", "MASK-1", "MASK-8"), skip=without_mask)
def mask_fits_the_keys(ctx: Context) -> None:
    def test(step: Step) -> None:
        if step.symbolic:
            return
        run, count, length = step.run, step.ask.count, step.length
        shape = tuple(step.mask.shape)
        axes = dict(zip((-1, -2, -3, -4), reversed(shape), strict=False))
        fits = (
            1 <= len(shape) <= 4
            and axes[-1] == length
            and axes.get(-2, count) in (count, 1)
            and axes.get(-3, 1) == 1
            and axes.get(-4, 1) in (1, run.dims.batch)
        )
        if not fits:
            wanted = f"({count}, {length})"
            if run.dims.batch > 1:
                wanted += f" or ({run.dims.batch}, 1, {count}, {length})"
            counted = f"len({listed(step.ids)})" if run.virtual else run.length_code()
            run.fail(
                f"the mask that was made for {count} new token{'s' * (count > 1)} does not fit the "
                f"{length} keys that their append returned",
                expected=f"shape {wanted}",
                observed=f"shape {shape}",
                code=[
                    f"assert mask.shape[-1] == {counted}, mask.shape",
                    f"mx.broadcast_to(mask, ({run.dims.batch}, 1, {count}, {counted}))",
                ],
                step=step,
            )

    steps_of(ctx, Shape(), test)


@check("MASK-3", needs=FITS, skip=without_mask)
def arrays_show_what_is_visible(ctx: Context) -> None:
    def test(step: Step) -> None:
        if not step.symbolic and not _one_windowed_query(step):
            compare_seen(step)

    steps_of(ctx, Shape(), test)


@check("MASK-4", needs=FITS, skip=without_mask)
def none_and_causal_are_exact(ctx: Context) -> None:
    def test(step: Step) -> None:
        if step.symbolic and not _one_windowed_query(step):
            compare_seen(step)

    steps_of(ctx, Shape(), test)


def _one_windowed_query(step: Step) -> bool:
    return step.ask.count == 1 and step.ask.window_size is not None


@check("MASK-5", needs=("UPD-1", "MASK-1"), skip=without_mask)
def array_when_asked_for(ctx: Context) -> None:
    def test(step: Step) -> None:
        if step.ask.return_array and step.ask.count > 1 and not isinstance(step.mask, mx.array):
            step.run.fail(
                "return_array=True, and the mask is no array",
                expected=f"an mx.array for {step.ask.count} tokens",
                observed=repr(step.mask)[:60],
                code=["assert isinstance(mask, mx.array), mask"],
                step=step,
            )

    steps_of(ctx, Shape(), test)


@check("MASK-6", needs=FITS, skip=without_mask)
def window_holds_for_one_token(ctx: Context) -> None:
    def test(step: Step) -> None:
        if _one_windowed_query(step):
            compare_seen(step)

    steps_of(ctx, Shape(windows="only"), test)


@check("MASK-7", needs=("UPD-1", "MASK-1"), skip=without_mask)
def making_a_mask_changes_nothing(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        ask = run.steps[-1].ask
        before, at = run.observe(masks=False), len(run.lines)
        first, _ = run.mask(ask)
        run.lines.append("first = mask")
        again, _ = run.mask(ask)
        if plain(first) != plain(again):
            run.fail(
                "equal calls of make_mask give different masks",
                expected=str(plain(first))[:60],
                observed=str(plain(again))[:60],
                code=["assert str(first) == str(mask), mask"],
            )
        run.unchanged("making a mask", before, at)

    ctx.for_traces(Shape(steps=4), test, fraction=0.5)


@check("MASK-8", needs=("UPD-1", "MASK-1"), skip=without_mask)
def mask_is_boolean_or_additive(ctx: Context) -> None:
    def test(step: Step) -> None:
        mask, run = step.mask, step.run
        if mask is None or (isinstance(mask, str) and mask == "causal"):
            return
        if not isinstance(mask, mx.array):
            observed = repr(mask)[:60]
        elif mask.dtype == mx.bool_:
            return
        elif not mx.issubdtype(mask.dtype, mx.floating):
            observed = f"dtype {mask.dtype}"
        else:
            values = to_numpy(mask)
            least = float(mx.finfo(mask.dtype).min)
            odd = values[~((values == 0) | np.isneginf(values) | (values <= least))]
            if odd.size == 0:
                return
            observed = f"{mask.dtype} with the value {odd.flat[0]}"
        run.fail(
            "the mask is neither boolean nor additive",
            expected='None, "causal", a boolean array, or floats of 0 and -inf',
            observed=observed,
            code=["assert mask.dtype == mx.bool_, mask"],
            step=step,
        )

    steps_of(ctx, Shape(), test)


@check("MASK-9", needs=(*FITS, "MASK-3", "MASK-4", "MASK-6"), skip=without_mask)
def nothing_to_hide_needs_no_array(ctx: Context) -> None:
    def test(step: Step) -> None:
        if step.symbolic or step.ask.return_array:
            return
        count, length = step.ask.count, step.length
        causal = np.arange(length) <= np.arange(length - count, length)[:, None]
        if (step.dense == causal).all():
            step.run.fail(
                "a mask is materialised although it hides nothing but the future",
                expected="None" if count == 1 else '"causal" or None',
                observed=f"an array of shape {tuple(step.mask.shape)}",
                code=["assert not isinstance(mask, mx.array), mask"],
                step=step,
            )

    steps_of(ctx, Shape(), test)


def no_window(profile: Profile) -> str | None:
    if without_mask(profile):
        return without_mask(profile)
    if isinstance(profile.claims.visibility, SlidingWindow):
        return None
    return f"declares no sliding window (visibility {profile.claims.visibility})"


@check("MASK-10", needs=("UPD-1", "MASK-1"), skip=no_window)
def wider_window_is_refused(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility
    assert isinstance(visibility, SlidingWindow)
    window = visibility.window

    def test(count: int) -> None:
        run = ctx.run(masks=False)
        run.step(Ask(2 * window + 1))
        run.step(Ask(1))
        ask = Ask(count, window + 2)
        error = run.attempt(f"mask = {mask_call(ask)}", lambda: run.ask_mask(ask))
        if error is None:
            run.fail(
                f"a window of {window + 2} is asked of a cache that keeps {window}, and it answers "
                "as if nothing was missing",
                expected="an exception",
                observed="a mask",
                code=["raise AssertionError(mask)"],
            )

    ctx.for_each((1, 2), test)


@check("MASK-11", needs=("MASK-1",), skip=without_mask)
def senseless_sizes_are_rejected(ctx: Context) -> None:
    def test(ask: Ask) -> None:
        run = ctx.run()
        error = run.attempt(f"mask = {mask_call(ask)}", lambda: run.ask_mask(ask))
        if not isinstance(error, ValueError):
            run.fail(
                f"{mask_call(ask)} is not rejected",
                expected="ValueError",
                observed="a mask" if error is None else f"{type(error).__name__}: {error}"[:60],
                code=["raise AssertionError('no ValueError')"],
            )

    ctx.for_each([Ask(0), Ask(-1), Ask(1, 0), Ask(3, 0), Ask(3, -1)], test)


@check("MASK-12", needs=("UPD-1", "UPD-2"), skip=with_mask)
def absence_is_harmless(ctx: Context) -> None:
    if ctx.profile.capabilities.data_free:
        ctx.tried += 1
        return  # it has neither rows nor a window that a fallback could get wrong
    if isinstance(ctx.profile.claims.visibility, Lossy):
        run = ctx.run()
        run.fail(
            "a cache that evicts has no make_mask, so consumers promise every key",
            expected="make_mask",
            observed="absent",
            code=["cache.make_mask"],
        )
    steps_of(ctx, Shape(windows=False, arrays=False), compare_seen)


@check("MASK-13", needs=("MASK-1",), skip=without_mask)
def answers_the_bare_form(ctx: Context) -> None:
    def test(count: int) -> None:
        run = ctx.run()
        run.call(f"mask = cache.make_mask({count})", lambda: run.cache.make_mask(count))

    ctx.for_each((1, 3), test)
