"""Checks of the quantize contract: ``bits``, ``group_size``, ``to_quantized``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.checks.whole import NEEDS, whole
from conformance.engine import Context, NotApplicable, check
from conformance.probe import refusal
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.tags import to_numpy
from conformance.trace import Ask, Operation, Run, Step, plain

SOME = Shape(tokens=32, steps=5, windows=False, arrays=False)


def plain_rows(profile: Profile) -> str | None:
    return None if profile.capabilities.quantized else "has no bits: it returns plain arrays"


def no_conversion(profile: Profile) -> str | None:
    return None if "to_quantized" in profile.capabilities.members else "has no to_quantized"


@check("QNT-1", needs=("UPD-1",))
def bits_announce_triples(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            has = hasattr(run.cache, "bits")
            triples = isinstance(step.keys, (tuple, list))
            if has != triples:
                run.fail(
                    f"bits is {'there' if has else 'absent'}, and update_and_fetch returns "
                    f"{'triples' if triples else 'plain arrays'}",
                    expected="bits if and only if triples",
                    observed=f"hasattr(cache, 'bits') is {has}",
                    code=["assert hasattr(cache, 'bits') == isinstance(keys, (tuple, list))"],
                    step=step,
                )
            if has and not hasattr(run.cache, "group_size"):
                run.fail(
                    "bits is there, and group_size is not",
                    expected="both",
                    observed="bits only",
                    code=["assert hasattr(cache, 'group_size')"],
                    step=step,
                )

    ctx.for_traces(SOME, test, masks=False, fraction=0.2)


@check("QNT-2", needs=("UPD-1",), skip=plain_rows)
def takes_what_mx_quantize_takes(ctx: Context) -> None:
    cache = ctx.run().cache
    group = int(cache.group_size)
    base = ctx.dims()
    good = [replace(base, key_dim=k * group, value_dim=v * group) for k, v in ((1, 2), (3, 1))]
    good += [replace(base, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")]
    for dims in good:
        ctx.tried += 1
        verdict, why = refusal(ctx.profile, dims)
        if verdict != "works":
            run = ctx.run(dims, masks=False)
            run.step(Ask(2))
            run.fail(
                f"{dims} is what mx.quantize takes, and update_and_fetch does not",
                expected="triples",
                observed=why,
                code=["raise AssertionError('refused')"],
            )


@check("QNT-7", needs=("UPD-1",), skip=plain_rows)
def refuses_what_mx_quantize_refuses(ctx: Context) -> None:
    group = int(ctx.run().cache.group_size)

    def test(key_dim: int) -> None:
        dims = ctx.dims(key_dim=key_dim)
        verdict, why = refusal(ctx.profile, dims)
        if verdict == "refused":
            return
        run = ctx.run(dims, masks=False)
        run.attempt(
            "keys, values = cache.update_and_fetch(*tokens([0, 1]))",
            lambda: run.cache.update_and_fetch(*run.tokens([0, 1])),
        )
        run.fail(
            f"a head dim of {key_dim}, no multiple of group_size {group}, is not refused before "
            "anything changes",
            expected="ValueError, and the cache as before",
            observed=why or "accepted",
            code=["raise AssertionError((cache.offset, cache.state))"],
        )

    ctx.for_each((group - 1, group + group // 2), test)


@check("QNT-3", needs=("UPD-1", "UPD-2"), skip=plain_rows)
def holds_what_mx_quantize_gives(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            for name, rows, given in zip(
                ("keys", "values"), (step.keys, step.values), run.tokens(step.ids), strict=True
            ):
                ids = [int(number) for number in step.key_ids[0, 0]]
                if not set(ids) <= set(step.ids):
                    continue  # rows that the mask hides (UPD-2)
                exact(step, name, rows, run.quantized(given), [step.ids.index(i) for i in ids])

    ctx.for_traces(Shape(tokens=40, windows=False, arrays=False), test, masks=False)


def exact(step: Step, name: str, rows: Any, codes: Sequence[mx.array], order: list[int]) -> None:
    """Fail unless every part of a triple is bit for bit what mx.quantize gives."""
    for part, got, wanted in zip(("packed", "scales", "biases"), rows, codes, strict=True):
        expected = to_numpy(wanted)[:, :, order]
        if got.dtype != wanted.dtype or not np.array_equal(to_numpy(got), expected):
            step.run.fail(
                f"{part} of the {name} are not what mx.quantize gives for the same rows",
                expected=f"{wanted.dtype}, bit for bit",
                observed=f"{got.dtype}, other numbers",
                code=[
                    "reference = mx.quantize("
                    f"tokens({step.ids})[{int(name == 'values')}], "
                    "group_size=cache.group_size, bits=cache.bits)",
                    f"for got, wanted in zip({name}, reference):",
                    "    assert mx.array_equal(got, wanted), got",
                ],
                step=step,
            )


@check("QNT-4", needs=("UPD-1", "UPD-2", "MASK-1", "MASK-2"), skip=plain_rows)
def quantised_attention_works(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            _attention_by_quantised_products(step)

    ctx.for_traces(Shape(tokens=32, steps=5), test, fraction=0.5)


def _attention_by_quantised_products(step: Step) -> None:
    """The scores and the output as consumers compute them, by mx.quantized_matmul with grouped
    heads, against the same products over dequantised rows."""
    run, dims = step.run, step.run.dims
    count, groups = step.ask.count, 2
    shape = (dims.batch, dims.heads, groups, count, dims.key_dim)
    numbers = mx.arange(int(np.prod(shape))).reshape(shape)
    queries = (((numbers * 7) % 13 - 6) / (64.0 * dims.key_dim)).astype(dims.mx_dtype)
    keys, values = ([part[:, :, None] for part in rows] for rows in (step.keys, step.values))
    options: dict[str, Any] = {"group_size": run.cache.group_size, "bits": run.cache.bits}
    allowed = mx.array(step.dense[:, None, None])
    try:
        scores = mx.quantized_matmul(queries, keys[0], keys[1], keys[2], True, **options)
        weights = mx.softmax(mx.where(allowed, scores, -mx.inf), axis=-1, precise=True)
        got = to_numpy(
            mx.quantized_matmul(weights, values[0], values[1], values[2], False, **options)
        )
    except (ValueError, TypeError, RuntimeError) as error:
        run.raised(error, "attention by mx.quantized_matmul")
    plain_keys, plain_values = (
        to_numpy(run.dequantize(rows))[:, :, None] for rows in (step.keys, step.values)
    )
    expected_scores = to_numpy(queries) @ plain_keys.swapaxes(-1, -2)
    expected_scores = np.where(step.dense[:, None, None], expected_scores, -np.inf)
    powers = np.exp(expected_scores - expected_scores.max(axis=-1, keepdims=True))
    expected = powers / powers.sum(axis=-1, keepdims=True) @ plain_values
    real = np.isfinite(expected)
    bound = 2.0**-10 * np.abs(plain_values).max() + 1e-6
    seen_by_all = np.asarray(step.dense.any(axis=-1))[:, None, None, :, None]
    finite = np.isfinite(got) | ~np.broadcast_to(seen_by_all, got.shape)
    if not finite.all() or not (np.abs(got - expected)[real] <= bound).all():
        run.fail(
            "attention by quantised products differs from attention over the dequantised rows",
            expected=f"equal within {bound:.2g}",
            observed="other numbers" if finite.all() else "NaN",
            code=["raise AssertionError('attention differs')"],
            step=step,
        )


@check("QNT-5", needs=NEEDS, skip=no_conversion)
def conversion_keeps_everything(ctx: Context) -> None:
    sizes = ((64, 128), (64, 64), *ctx.profile.claims.head_dims)
    for key_dim, value_dim in sizes:
        dims = ctx.dims(key_dim=key_dim, value_dim=value_dim)
        if key_dim % 64 == value_dim % 64 == 0 and refusal(ctx.profile, dims)[0] == "works":
            break
    else:
        raise NotApplicable("takes no head dim that the groups of mx.quantize divide")
    for bits, group in ((8, 32), (4, 64)):
        ctx.for_traces(
            SOME,
            lambda run, operations, bits=bits, group=group: _converts(  # type: ignore[misc]
                run, operations, bits, group
            ),
            dims=dims,
            fraction=0.2,
        )


def _converts(run: Run, operations: list[Operation], bits: int, group: int) -> None:
    run.apply(operations)
    before = plain(run.cache.state) if "state" in run.profile.capabilities.members else None
    line = f"quantized = cache.to_quantized(group_size={group}, bits={bits})"
    try:
        made = run.cache.to_quantized(group_size=group, bits=bits)
    except NotImplementedError:
        raise NotApplicable("to_quantized raises NotImplementedError (REF-1)") from None
    except Exception as error:
        run.raised(error, line)
    run.lines.append(line)
    if (getattr(made, "bits", None), getattr(made, "group_size", None)) != (bits, group):
        run.fail(
            "the converted cache does not say how it is quantised",
            expected=f"bits {bits}, group_size {group}",
            observed=f"{getattr(made, 'bits', None)}, {getattr(made, 'group_size', None)}",
            code=[f"assert (quantized.bits, quantized.group_size) == ({bits}, {group})"],
        )
    if plain(made.offset) != run.offset_value():
        run.fail(
            "the converted cache is at another offset",
            expected=str(run.offset_value()),
            observed=str(plain(made.offset)),
            code=["assert quantized.offset == cache.offset, quantized.offset"],
        )
    if run.profile.claims.lossy:
        return  # which tokens it held, its policy knows
    ids = [*run.log.ids, run.log._next]
    next_keys, next_values = run.tokens(ids[-1:])
    appended = f"keys, values = quantized.update_and_fetch(*tokens([{ids[-1]}]))"
    keys, values = run.call(appended, lambda: made.update_and_fetch(next_keys, next_values))
    for name, rows, given in zip(("keys", "values"), (keys, values), run.tokens(ids), strict=True):
        wanted = mx.quantize(given, group_size=group, bits=bits)
        held = len(ids) if rows[0].shape[2] == len(ids) else rows[0].shape[2]
        for got, code in zip(rows, wanted, strict=True):
            if not np.array_equal(to_numpy(got), to_numpy(code)[:, :, len(ids) - held :]):
                run.fail(
                    f"the converted cache holds other {name} than mx.quantize gives",
                    expected=f"tokens {ids}, quantised",
                    observed="other rows",
                    code=["raise AssertionError('other rows')"],
                )
    if before is not None and plain(run.cache.state) != before:
        run.fail(
            "conversion changes its source",
            expected="state as before",
            observed="another state",
            code=["raise AssertionError('changed')"],
        )
    whole(run.step(Ask(1)))


@check("QNT-6", needs=("UPD-1",), skip=plain_rows)
def keys_and_values_keep_their_own_dtype(ctx: Context) -> None:
    run = ctx.run(ctx.dims(dtype="float16"), masks=False)
    ctx.tried += 1
    keys, values = run.tokens([0, 1])
    line = (
        "keys, values = cache.update_and_fetch("
        "tokens([0, 1])[0], tokens([0, 1])[1].astype(mx.float32))"
    )
    result = run.call(line, lambda: run.cache.update_and_fetch(keys, values.astype(mx.float32)))
    rows = run.unpack(result)
    for name, triple, dtype in zip(("keys", "values"), rows, (mx.float16, mx.float32), strict=True):
        if triple[1].dtype != dtype:
            run.fail(
                f"the scales of the {name} have another dtype than the {name} that were given",
                expected=str(dtype),
                observed=str(triple[1].dtype),
                code=[f"assert {name}[1].dtype == {dtype!s}".replace("mlx.core", "mx")],
            )
