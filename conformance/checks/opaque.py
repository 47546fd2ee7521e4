"""Checks of the opaque contract: handles, and the attention over them that is the cache's own.

Every other check reads the tokens behind handles through that attention
(:func:`conformance.helpers.opened`), so an opaque cache owes what any other one owes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from conformance.attention import make_queries
from conformance.checks.update import attention_is_exact, is_lossy
from conformance.checks.whole import NEEDS
from conformance.engine import Context, check
from conformance.strategies import Shape
from conformance.tags import UNKNOWN
from conformance.trace import Ask, Operation, Run

SOME = Shape(tokens=32, steps=5, windows=False, arrays=False)


def returned(run: Run, operation: Operation) -> tuple[Any, Any] | None:
    """What one append returns, as it is; None where the operation is none."""
    if not isinstance(operation, Ask):
        run.apply([operation])
        return None
    ids = run.log.append(operation.count)
    keys, values = run.tokens(ids)
    result = run.call(
        f"keys, values = cache.update_and_fetch(*tokens({ids}))",
        lambda: run.cache.update_and_fetch(keys, values),
    )
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return None  # UPD-1
    return result[0], result[1]


def is_handle(rows: Any) -> bool:
    return not isinstance(rows, (mx.array, tuple, list))


def _attention(queries: mx.array, keys: Any, values: Any) -> mx.array:
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0)


USES: dict[str, Callable[[mx.array, Any, Any], Any]] = {
    "mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0)": _attention,
    "mx.array(keys)": lambda queries, keys, values: mx.array(keys),
    "queries + values": lambda queries, keys, values: queries + values,
    "packed, scales, biases = keys": lambda queries, keys, values: tuple(keys),
}
"""What consumers do with rows."""


@check("OPQ-1")
def handles_are_no_rows(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            got = returned(run, operation)
            if got is None or not any(map(is_handle, got)):
                continue  # OPQ-3
            if hasattr(run.cache, "bits"):
                run.fail(
                    "it returns handles, and has bits",
                    expected="no bits, which announces triples",
                    observed=f"bits = {run.cache.bits!r}",
                    code=["assert not hasattr(cache, 'bits')"],
                )
            keys, values = got
            queries = make_queries(run.dims, 1)
            for code, use in USES.items():
                try:
                    use(queries, keys, values)
                except Exception:
                    continue
                run.fail(
                    f"a handle can be used as rows: `{code}` does not raise",
                    expected="an exception",
                    observed="no exception",
                    code=[
                        f"queries = mx.zeros({tuple(queries.shape)})",
                        "try:",
                        f"    {code}",
                        "except Exception:",
                        "    pass",
                        "else:",
                        "    raise AssertionError('a handle was taken for rows')",
                    ],
                )

    ctx.for_traces(SOME, test, masks=False, fraction=0.2)


@check("OPQ-2", needs=("UPD-2", *NEEDS), skip=is_lossy)
def own_attention_is_exact(ctx: Context) -> None:
    attention_is_exact(ctx)


@check("OPQ-3")
def what_is_no_handle_is_the_tokens(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            got = returned(run, operation)
            if got is None or any(map(is_handle, got)):
                continue
            for name, rows, salt in (("keys", got[0], 0), ("values", got[1], 3)):
                if not run.is_rows(rows):
                    continue  # UPD-1
                unknown = (run.identify(rows, salt, run.log.ids) == UNKNOWN).sum()
                if unknown:
                    run.fail(
                        f"{name} are returned as plain rows, and {unknown} of them are no token "
                        "that was appended",
                        expected="the rows as they came, or a handle",
                        observed="rows in another basis",
                        code=[
                            f"assert min(numbers({name}, 0, {int(name == 'values')})) >= 0, {name}"
                        ],
                    )

    ctx.for_traces(SOME, test, masks=False, fraction=0.2)


@check("OPQ-4", needs=())
def handles_have_a_shape(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        dims = run.dims
        for operation in operations:
            mask = None
            if isinstance(operation, Ask) and run.has_mask:
                mask, _ = run.mask(operation)
            got = returned(run, operation)
            if got is None:
                continue
            for name, rows, dim in zip(
                ("keys", "values"), got, (dims.key_dim, dims.value_dim), strict=True
            ):
                if not is_handle(rows):
                    continue
                shape = getattr(rows, "shape", None)
                fits = isinstance(shape, tuple) and len(shape) == 4
                length = shape[2] if fits and shape else None
                if isinstance(mask, mx.array):
                    length = mask.shape[-1]
                expected = (dims.batch, dims.heads, length, dim)
                if not fits or shape != expected:
                    run.fail(
                        f"the handle of the {name} has another shape than the rows behind it",
                        expected=str(expected),
                        observed=str(shape),
                        code=[f"assert getattr({name}, 'shape', None) == {expected}"],
                    )

    ctx.for_traces(Shape(tokens=32, steps=5, windows=False), test, fraction=0.2)
