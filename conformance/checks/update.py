"""Checks of the update contract: ``update_and_fetch``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from conformance.attention import dense_attention, make_queries
from conformance.checks._common import Held, as_its_layer_asks, needed_columns
from conformance.engine import Context, NotApplicable, check
from conformance.graph import makes_new_buffer, pending
from conformance.probe import refusal
from conformance.program import listed, ranges
from conformance.strategies import Shape, boundaries, traces
from conformance.subject import Profile
from conformance.tags import UNKNOWN, Dims, to_numpy
from conformance.trace import (
    REFUSALS,
    Ask,
    Operation,
    Run,
    Step,
    Trim,
    Violation,
    default_dims,
    mask_call,
    plain,
    reachable_arrays,
)
from kvproto.visibility import Lossy, SlidingWindow

APPENDS = Shape(windows=False, arrays=False)


def numbers_code(run: Run, name: str, row: int = 0, head: int | None = None) -> str:
    """The expression that reads token numbers off a result in a printed program."""
    if run.profile.capabilities.quantized:  # dequantised rows are near the tokens, not equal
        return f"[round(n) for n in dequantized({name}, cache)[{row}, {head or 0}, :, 0].tolist()]"
    which = ", 1" if name == "values" else ""
    if head is not None:
        return f"numbers({name}, {row}, {int(name == 'values')}, {head})"
    return f"numbers({name}{f', {row}' if row or which else ''}{which})"


@check("UPD-1")
def returns_keys_and_values_in_one_order(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            one_order(step)

    ctx.for_traces(APPENDS, test, masks=False)


def one_order(step: Step) -> None:
    """Fail unless both results hold the same tokens in the same order, the new ones included.

    Of a long append to a cache that evicts only the newest one is sure to come back.
    """
    run, given = step.run, step.ids[step.start :]
    lossy = isinstance(step.visibility, Lossy)
    new = given[-1:] if lossy else given
    for row in range(run.dims.batch):
        for head in range(run.dims.heads):
            own = head if lossy else None
            keys = [int(number) for number in step.key_ids[row, head if lossy else 0]]
            shown = numbers_code(run, "keys", row, own)
            lost = [number for number in new if number not in keys]
            if lost:
                run.fail(
                    f"the append of {listed(given)} does not return "
                    f"token{'s' * (len(lost) > 1)} {ranges(lost)}",
                    expected=f"keys of tokens {ranges(step.ids)} or the newest of them",
                    observed=f"keys of tokens {ranges(keys)}",
                    code=[f"assert {{*{listed(new)}}} <= {{*{shown}}}, {shown}"],
                    step=step,
                )
            for name, ids in (("keys", step.key_ids), ("values", step.value_ids)):
                if name == "values" and run.dims.value_dim == 0:
                    continue
                got = [int(number) for number in ids[row, head]]
                if got != keys:
                    values = numbers_code(run, "values", row, own)
                    run.fail(
                        f"{name} of head {head} hold other tokens, or in another order, than "
                        f"keys of head {own or 0}",
                        expected=f"tokens {ranges(keys)}",
                        observed=f"tokens {ranges(got)}",
                        code=[f"assert {values} == {shown}, {values}"],
                        step=step,
                    )


@check("UPD-2", needs=("UPD-1", "MASK-1"))
def returns_what_was_appended(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            retained(step)
            nothing_else_shows(step)

    ctx.for_traces(Shape(), test)


def retained(step: Step) -> None:
    """Fail unless every token that some query must see is among the returned ones."""
    run = step.run
    for row, head in product(range(run.dims.batch), step.heads):
        got = [int(number) for number in step.key_ids[row, head or 0]]
        needed = [step.ids[column] for column in needed_columns(step, row)]
        missing = [number for number in needed if number not in got]
        if missing:
            where = f" in row {row}" if run.dims.batch > 1 else ""
            shown = numbers_code(run, "keys", row, head)
            run.fail(
                f"missing from what the append returned{where}: token {ranges(missing)}",
                expected=f"tokens {ranges(needed)}",
                observed=f"tokens {ranges(got)}",
                code=[f"assert {{*{listed(needed)}}} <= {{*{shown}}}, {shown}"],
                step=step,
            )


def nothing_else_shows(step: Step) -> None:
    """Fail if a row that is no retained token, or one for the second time, can be attended."""
    run = step.run
    for row, head in product(range(run.dims.batch), step.heads):
        ids = [int(number) for number in step.key_ids[row, head or 0]]
        times = Counter(ids)
        padding = set(step.ids[: run.log.left_padding[row]])
        odd = [
            index
            for index, number in enumerate(ids)
            if number == UNKNOWN or number not in step.ids or times[number] > 1
        ]
        odd = [index for index in odd if ids[index] not in padding]
        if not odd:
            continue
        shown = _shown(step, row, odd)
        if not shown:
            continue
        number = ids[shown[0]]
        seen = numbers_code(run, "keys", row, head)
        if number == UNKNOWN:
            what = "is no token that was appended"
            claim = f"{seen}[{shown[0]}] in {{*{listed(step.ids)}}}"
        elif number not in step.ids:
            what = f"is token {number}, which was trimmed"
            claim = f"{number} not in {seen}"
        else:
            what = f"is token {number} for the second time"
            claim = f"{seen}.count({number}) == 1"
        run.fail(
            f"row {shown[0]} of the {len(ids)} returned keys {what}, and the mask does not hide it",
            expected=f"tokens {ranges(step.ids[c] for c in needed_columns(step, row))}",
            observed=f"tokens {ranges(ids)}",
            code=[f"assert {claim}, {seen}"],
            step=step,
        )


def _shown(step: Step, row: int, rows: list[int]) -> list[int]:
    """Which of these returned rows some query may attend; all, if the mask does not even fit."""
    if not step.run.asks_masks or not step.run.has_mask:
        return rows
    if not step.symbolic and not isinstance(step.mask, mx.array):
        return rows
    if not step.symbolic and (step.mask.ndim == 0 or step.mask.shape[-1] != step.length):
        return rows
    return [index for index in rows if step.dense[row, :, index].any()]


def attends_itself(profile: Profile) -> str | None:
    if profile.capabilities.opaque:
        return "has attend: the attention is its own (OPQ-2)"
    return is_lossy(profile)


def is_lossy(profile: Profile) -> str | None:
    lossy = isinstance(profile.claims.visibility, Lossy)
    return "claims lossy: what it keeps may depend on the chunks" if lossy else None


@check("UPD-3", needs=("UPD-1", "UPD-2", "MASK-1", "MASK-2"), skip=is_lossy)
def chunks_do_not_matter(ctx: Context) -> None:
    visibility = ctx.profile.claims.visibility
    own = visibility.window if isinstance(visibility, SlidingWindow) else None

    def test(drawn: tuple[list[Operation], int | None]) -> None:
        operations, window = drawn
        window = own if own is not None else window
        if visibility.narrowed(2) is None or "make_mask" not in ctx.profile.capabilities.members:
            window = None
        chunked, single = ctx.run(), ctx.run()
        total = 0
        for operation in operations:
            assert isinstance(operation, Ask)
            total += operation.count
            chunked.step(replace(operation, window_size=window))
        for _ in range(total):
            single.step(Ask(1, window))
        for step in chunked.steps:
            for query, column in enumerate(step.columns):
                alone = single.steps[column - single.steps[0].start]
                for row in range(chunked.dims.batch):
                    if chunked.log.is_padding(row, column):
                        continue
                    got, expected = sorted(step.seen(row, query)), sorted(alone.seen(row, 0))
                    if got != expected:
                        chunked.fail(
                            f"query {query} of a chunk of {step.ask.count} sees other tokens than "
                            "when the same tokens are fed one by one",
                            expected=f"tokens {ranges(expected)}, as one by one",
                            observed=f"tokens {ranges(got)}",
                            code=[
                                f"got = seen(mask, keys, {step.ask.count}, {query}, {row})",
                                f"assert got == {expected}, got",
                            ],
                            step=step,
                        )

    shape = Shape(tokens=24, windows=False, arrays=False)
    strategy = st.tuples(traces(ctx.profile, shape), st.none() | st.integers(1, 24))
    ctx.for_all(strategy, test, fraction=0.5)


@check("UPD-4", needs=("UPD-1", "UPD-2"))
def growing_loses_nothing(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for step in run.apply(operations).steps:
            one_order(step)
            retained(step)

    limit = 1100
    near = boundaries(ctx.profile, limit - 2)
    # One token, then a whole buffer; a buffer, then one token: where growth is usually wrong.
    listed: list[list[Operation]] = []
    for boundary in near:
        if boundary >= 64:
            listed.append([Ask(1), Ask(boundary)])
            listed.append([Ask(boundary - 1), Ask(1), Ask(1), Ask(boundary // 2)])
    ctx.for_each(listed, lambda operations: test(ctx.run(masks=False), operations))
    shape = Shape(tokens=limit, steps=5, windows=False, arrays=False)
    ctx.for_traces(shape, test, masks=False, fraction=0.5)

    # Token by token past every buffer size, declared or not.
    run = ctx.run(masks=False)
    for _ in range(limit // 100):
        ctx.tried += 1
        for _ in range(99):
            run.step(Ask(1), evaluate=False)
        mx.eval(run.steps[-1].keys, run.steps[-1].values)
        step = run.step(Ask(1))
        one_order(step)
        retained(step)


@check("UPD-5", needs=("UPD-1",))
def keeps_shape_and_dtype(ctx: Context) -> None:
    profile = ctx.profile
    base = default_dims(profile)
    declared = profile.declared
    options = [replace(base, key_dim=k, value_dim=v) for k, v in declared.head_dims]
    options += [replace(base, dtype=dtype) for dtype in declared.dtypes]

    def test(dims: Dims) -> None:
        verdict, _ = refusal(profile, dims)
        if verdict == "refused":
            return  # a declared restriction; the report lists it
        run = ctx.run(dims, masks=False)
        try:
            for count in (2, 1, 3):
                step = run.step(Ask(count))
                one_order(step)
                _shape_and_dtype(step, "keys", step.keys, dims.key_dim)
                _shape_and_dtype(step, "values", step.values, dims.value_dim)
        except Violation as violation:
            violation.message += f", for {dims}"
            if verdict == "broken" and violation.expected == "no exception":
                violation.expected = "the rows back, or a refusal before anything changes"
                violation.observed += " (after something changed)"
            raise

    ctx.for_each(options, test)


def _shape_and_dtype(step: Step, name: str, rows: Any, width: int) -> None:
    run, dims = step.run, step.run.dims
    if run.is_triples(rows):
        shape, dtype = run.dequantize(rows).shape, rows[1].dtype
    else:
        shape, dtype = rows.shape, rows.dtype
    wanted = (dims.batch, dims.heads, shape[2], width)
    if tuple(shape) != wanted:
        run.fail(
            f"{name} come back in another shape",
            expected=f"{wanted}",
            observed=f"{tuple(shape)}",
            code=[f"assert {name}.shape[-1] == {width}, {name}.shape"],
            step=step,
        )
    if dtype != dims.mx_dtype:
        run.fail(
            f"{name} come back in another dtype",
            expected=dims.dtype,
            observed=str(dtype),
            code=[f"assert {name}.dtype == mx.{dims.dtype}, {name}.dtype"],
            step=step,
        )


# -- bad input ---------------------------------------------------------------------------------


def _bad_inputs(dims: Dims) -> list[tuple[str, Dims, int]]:
    """(what is wrong, the sizes of the keys and values, values more than keys)."""
    bad = [
        (f"a head count of 1 instead of {dims.heads}", replace(dims, heads=1), 0),
        ("a key head dim of 1", replace(dims, key_dim=1), 0),
        ("more values than keys", dims, 1),
        ("fewer values than keys", dims, -1),
    ]
    if dims.value_dim > 1:
        bad.append(("a value head dim of 1", replace(dims, value_dim=1), 0))
    if dims.batch > 1:
        bad.insert(0, (f"a batch of 1 instead of {dims.batch}", replace(dims, batch=1), 0))
    return bad


def _bad_append(run: Run, sizes: Dims, surplus: int) -> tuple[str, Callable[[], Any]]:
    """The line and the call of an append that ought to be refused."""
    from conformance.helpers import make_tokens

    first = run.log.length
    ids = [first, first + 1]

    def made(numbers: list[int]) -> tuple[mx.array, mx.array]:
        return make_tokens(
            numbers, sizes.batch, sizes.heads, sizes.key_dim, sizes.value_dim, sizes.mx_dtype
        )

    arguments = f"{sizes.batch}, {sizes.heads}, {sizes.key_dim}, {sizes.value_dim}"
    line = f"tokens({ids}, {arguments})"
    keys, values = made(ids)
    if surplus:
        other = [*ids, first + 2] if surplus > 0 else ids[:1]
        values = made(other)[1]
        line = f"tokens({ids}, {arguments})[0], tokens({other}, {arguments})[1]"
    else:
        line = f"*{line}"

    def call() -> Any:
        result = run.cache.update_and_fetch(keys, values)
        mx.eval(result)
        return result

    return f"keys, values = cache.update_and_fetch({line})", call


def _largest_batch(ctx: Context) -> Dims:
    return ctx.dims(batch=max(size for size in ctx.profile.claims.batch_sizes if size <= 3))


@check("UPD-6", needs=("UPD-1", "UPD-2"))
def wrong_sizes_are_refused(ctx: Context) -> None:
    dims = _largest_batch(ctx)
    found: list[tuple[str, str, Run]] = []

    def test(case: tuple[str, Dims, int]) -> None:
        what, sizes, surplus = case
        run = ctx.run(dims, masks=False)
        run.step(Ask(3))
        before = run.observe(state=False)
        line, call = _bad_append(run, sizes, surplus)
        error = run.attempt(line, call)
        after = run.observe(state=False)
        changed = [name for name in before if after[name] != before[name]]
        if error is None:
            found.append((what, "accepted: rows are broadcast, or stored as they are", run))
        elif not isinstance(error, (ValueError, TypeError)):
            found.append((what, f"{type(error).__name__}", run))
        elif changed:
            found.append((what, f"refused after {changed[0]} changed", run))

    ctx.for_each(_bad_inputs(dims), test)
    if found:
        what, outcome, run = found[0]
        others = f"; likewise {', '.join(other for other, _, _ in found[1:])}" * (len(found) > 1)
        run.fail(
            f"{what} is not refused before anything changes{others}",
            expected="ValueError or TypeError, and nothing changed",
            observed=outcome,
            code=["raise AssertionError('not refused before anything changed')"],
        )


@check("UPD-10", needs=("UPD-1", "UPD-2"))
def a_call_that_raises_did_not_happen(ctx: Context) -> None:
    dims = _largest_batch(ctx)

    def test(case: tuple[tuple[str, Dims, int], int]) -> None:
        (what, sizes, surplus), held = case
        run = ctx.run(dims, masks=False)
        if held:
            run.step(Ask(held))
        before, at = run.observe(state=False), len(run.lines)
        error = run.attempt(*_bad_append(run, sizes, surplus))
        if error is None:
            return  # accepted: UPD-6's business
        run.unchanged(f"an update_and_fetch that raises for {what}", before, at)
        step = run.step(Ask(1))
        try:
            retained(step)
            nothing_else_shows(step)
        except Violation as violation:
            violation.message = f"after update_and_fetch raised for {what}: {violation.message}"
            raise

    ctx.for_each([(case, held) for case in _bad_inputs(dims) for held in (0, 3)], test)


@check("UPD-7", needs=("UPD-1", "UPD-2", "MASK-1"))
def nothing_appended_nothing_changed(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        run.apply(operations)
        before = run.offset_value()
        keys, values = run.tokens([])
        run.call(
            "keys, values = cache.update_and_fetch(*tokens([]))",
            lambda: run.cache.update_and_fetch(keys, values),
        )
        after = run.offset_value()
        if after != before:
            run.fail(
                "an append of no tokens moves offset",
                expected=str(before),
                observed=str(after),
                code=[f"assert cache.offset == {before}, cache.offset"],
            )
        step = run.step(Ask(1))
        retained(step)
        nothing_else_shows(step)

    ctx.tried += 1
    test(ctx.run(), [])
    ctx.for_traces(Shape(steps=3, windows=False, arrays=False), test, fraction=0.2)


# -- aliasing ----------------------------------------------------------------------------------


def _around_boundaries(ctx: Context, limit: int) -> list[list[Operation]]:
    """Traces in which a buffer is exactly full when the next tokens come."""
    listed: list[list[Operation]] = []
    for boundary in boundaries(ctx.profile, limit):
        listed.append([Ask(boundary), Ask(1)])
        listed.append([Ask(boundary), Trim(1), Ask(1)])
    return listed


@check("UPD-8", needs=("UPD-1", "UPD-2"))
def returned_arrays_stay(ctx: Context) -> None:
    if ctx.profile.capabilities.opaque:
        raise NotApplicable("returns handles, which only the next attention uses")

    def test(run: Run, operations: list[Operation]) -> None:
        held = Held(run, "an array that an earlier append returned")
        for operation in operations:
            run.apply([operation])
            held.check()
            if isinstance(operation, Ask):
                step = run.steps[-1]
                held.keep("(keys, values)", (step.keys, step.values))

    dims = ctx.dims(batch=min(ctx.profile.claims.batch_sizes))
    ctx.for_each(
        _around_boundaries(ctx, 256), lambda trace: test(ctx.run(dims, masks=False), trace)
    )
    ctx.for_traces(replace(APPENDS, trims=True), test, masks=False, dims=dims, fraction=0.5)


@check("UPD-9", needs=("UPD-1", "UPD-2"))
def given_arrays_stay(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        held = Held(run, "an array that the caller passed to an earlier append")
        for operation in operations:
            if isinstance(operation, Ask):
                # Kept by the caller: named in the program before they are passed.
                first = run.log._next
                ids = listed(list(range(first, first + operation.count)))
                run.apply([operation])
                line = run.lines.pop()
                given = f"given_{len(run.given)}"
                run.lines += [f"{given} = tokens({ids})", line.replace(f"tokens({ids})", given)]
                if plain(run.given[-1]) != plain(run.tokens(list(run.log.ids[-operation.count :]))):
                    run.fail(
                        "the append changes the arrays that the caller passed to it",
                        expected="the rows as they were passed",
                        observed="other numbers",
                        code=[f"assert mx.array_equal({given}[0], tokens({ids})[0]), {given}[0]"],
                    )
                held.keep(given, run.given[-1])
            else:
                run.apply([operation])
            held.check()

    ctx.for_each(_around_boundaries(ctx, 256), lambda trace: test(ctx.run(masks=False), trace))
    ctx.for_traces(replace(APPENDS, trims=True), test, masks=False, fraction=0.5)


# -- cost --------------------------------------------------------------------------------------

HELD, APPENDED = 4096, 520
"""The cost of growth shows once the cache is large: one-token appends after this many tokens."""


@check("UPD-11", needs=("UPD-1", "UPD-2"))
def growth_is_amortised(ctx: Context) -> None:
    dims = ctx.dims(batch=min(ctx.profile.claims.batch_sizes), dtype="float32")
    run = ctx.run(dims, masks=False)
    keys, values = run.tokens(run.log.append(HELD))
    line = f"keys, values = cache.update_and_fetch(*tokens({listed(run.log.ids)}))"
    run.unpack(run.call(line, lambda: run.cache.update_and_fetch(keys, values)))
    mx.eval(reachable_arrays(run.cache))
    moved = 0
    for _ in range(APPENDED):
        ctx.tried += 1
        token = run.tokens(run.log.append(1))
        mx.eval(token)
        run.cache.update_and_fetch(*token)
        arrays = reachable_arrays(run.cache)
        held = max((array.shape[-2] for array in arrays if array.ndim >= 3), default=0)
        if makes_new_buffer(arrays, rows=min(held, run.log.length)):
            moved += min(held, run.log.length)
        mx.eval(arrays)
    allowed = 3 * APPENDED + HELD
    if moved > allowed:
        run.fail(
            f"{APPENDED} one-token appends to {HELD} tokens move {moved} rows: growth copies "
            "everything too often",
            expected=f"at most {allowed} rows (one reallocation, and 3 rows an append)",
            observed=f"{moved} rows, {moved / APPENDED:.0f} an append",
            code=[
                f"for t in range({HELD}, {HELD + APPENDED}):",
                "    cache.update_and_fetch(*tokens([t]))",
                "# The lazy graph of each append shows when a new buffer is filled.",
                "raise AssertionError('too many rows are moved')",
            ],
        )
    array_rows = [array.shape[-2] for array in reachable_arrays(run.cache) if array.ndim >= 3]
    if array_rows and max(array_rows) > 4 * run.log.length:
        run.fail(
            "far more memory is held than the tokens need",
            expected=f"buffers of at most {4 * run.log.length} rows",
            observed=f"{max(array_rows)} rows",
            code=["raise AssertionError([a.shape for a in arrays(cache.state)])"],
        )


@check("UPD-12", needs=("UPD-1", "MASK-1"))
def nothing_is_evaluated(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations[:-1]:
            run.apply([operation])
        last = operations[-1]
        assert isinstance(last, Ask)
        ids = run.log.append(last.count)
        # An operation that is found again behind the result, unless something evaluated it.
        keys, values = (mx.arctan(mx.tan(rows)) for rows in run.tokens(ids))
        line = f"keys, values = cache.update_and_fetch(*lazy({listed(ids)}))"
        if run.asks_masks:
            run.mask(last)
        run.lines += [
            "def lazy(ids):",
            "    return [mx.arctan(mx.tan(rows)) for rows in tokens(ids)]",
        ]
        result = run.call(line, lambda: run.cache.update_and_fetch(keys, values))
        if "offset" in run.profile.capabilities.members:
            run.read("cache.offset", lambda: run.cache.offset)
        if run.has_mask:
            with suppress(*REFUSALS):
                run.ask_mask(Ask(1))
                run.lines.append(mask_call(Ask(1)))
        if "ArcTan" not in pending([keys]) or "ArcTan" not in pending([values]):
            run.fail(
                "update_and_fetch evaluates the rows that it is given",
                expected="a lazy result: arctan is still to be computed",
                observed="evaluated",
                code=[
                    "from io import StringIO",
                    "graph = StringIO()",
                    "mx.export_to_dot(graph, keys)",
                    "assert 'ArcTan' in graph.getvalue()",
                ],
            )
        run.unpack(result)

    ctx.for_traces(Shape(steps=3, windows=False, arrays=False), test, fraction=0.3)


# -- batches and attention ---------------------------------------------------------------------


def _batch_sizes(profile: Profile) -> list[int]:
    """Batch sizes above 1 that the cache does not refuse cleanly."""
    plain = default_dims(profile)
    sizes = [size for size in profile.declared.batch_sizes if size > 1]
    return [s for s in sizes if refusal(profile, replace(plain, batch=s))[0] != "refused"]


def one_row_only(profile: Profile) -> str | None:
    if profile.claims.left_padding is not None and any(profile.claims.left_padding):
        return "is a padded batch (the batch contract)"
    return None if _batch_sizes(profile) else "takes one sequence only"


@check("UPD-13", needs=("UPD-1", "UPD-2"), skip=one_row_only)
def rows_do_not_meet(ctx: Context) -> None:
    def test(drawn: tuple[int, list[Operation]]) -> None:
        batch, operations = drawn
        run = ctx.run(ctx.dims(batch=batch))
        for step in run.apply(operations).steps:
            one_order(step)
            retained(step)
            nothing_else_shows(step)

    ctx.for_all(
        st.tuples(
            st.sampled_from(_batch_sizes(ctx.profile)), traces(ctx.profile, Shape(tokens=32))
        ),
        test,
        fraction=0.5,
    )


EXACT = ("MASK-1", "MASK-2", "MASK-3", "MASK-4", "MASK-6", "MASK-12")


@check("UPD-14", needs=("UPD-1", "UPD-2", "UPD-13", *EXACT), skip=attends_itself)
def attention_equals_dense_attention(ctx: Context) -> None:
    attention_is_exact(ctx)


def attention_is_exact(ctx: Context) -> None:
    """Fail unless attention over what each append returns is dense attention over the log, by
    the usual kernel or, over handles, by the cache's own."""
    asks = "make_mask" in ctx.profile.capabilities.members
    for dtype in ctx.profile.claims.dtypes:
        # Rounding grows with the number of keys; few keys keep a lost token visible above it.
        tokens = 40 if dtype == "float32" else 10
        shape = Shape(tokens=tokens, steps=6, windows=asks, arrays=asks)
        dims = ctx.dims(dtype=dtype)
        ctx.for_traces(shape, _attends, dims=dims, fraction=0.5)
    for size in ctx.profile.claims.batch_sizes[1:2]:
        shape = Shape(tokens=24, steps=4, windows=asks, arrays=asks)
        ctx.for_traces(shape, _attends, dims=ctx.dims(batch=size), fraction=0.2)


def _attends(run: Run, operations: list[Operation]) -> None:
    if run.dims.value_dim == 0:
        return
    for operation in as_its_layer_asks(run.profile, operations):
        run.apply([operation])
        step = run.steps[-1]
        queries = make_queries(run.dims, step.ask.count)
        scale = 1.0
        mask = (
            mx.array(step.dense[:, None])
            if not step.symbolic and not isinstance(step.mask, mx.array)
            else step.mask
        )
        keys, values = step.keys, step.values
        if run.is_triples(keys):
            keys, values = run.dequantize(keys), run.dequantize(values)
        attend: Callable[..., Any] = mx.fast.scaled_dot_product_attention
        call = "mx.fast.scaled_dot_product_attention(keys, keys, values, scale=1, mask=mask)"
        if run.handles is not None:
            attend, (keys, values) = run.cache.attend, run.handles
            call = "cache.attend(keys, keys, values, scale=1.0, mask=mask)"
        try:
            out = attend(queries, keys, values, scale=scale, mask=mask)
            got = to_numpy(out)
        except REFUSALS as error:
            run.fail(
                "attention over the returned keys with the returned mask raises",
                expected="an array",
                observed=f"{type(error).__name__}: {error}"[:120],
                code=[call],
                step=step,
            )
        expected, bound = dense_attention(step, to_numpy(queries), scale)
        real = ~np.isnan(expected)
        error_at = np.where(real, np.abs(got - np.where(real, expected, 0)), 0)
        if not (error_at <= bound).all() or not np.isfinite(got[real]).all():
            worst = np.unravel_index(int(np.argmax(error_at - bound)), error_at.shape)
            run.fail(
                f"attention differs from dense attention over the log ({step.visibility}) for "
                f"query {worst[2]} of {step.ask.count}",
                expected=f"{expected[worst]:.4f} within {bound[worst]:.1g}",
                observed=f"{got[worst]:.4f}",
                code=[
                    "# Attention of the last step against dense attention over the whole log.",
                    f"print({numbers_code(run, 'keys')}, mask)",
                    "raise AssertionError('attention differs')",
                ],
                step=step,
            )


def one_dtype_only(profile: Profile) -> str | None:
    return None if len(profile.claims.dtypes) > 1 else "takes one dtype only"


@check("UPD-15", needs=("UPD-1", "UPD-2"), skip=one_dtype_only)
def one_rule_for_a_changing_dtype(ctx: Context) -> None:
    first, second = ctx.profile.claims.dtypes[1], ctx.profile.claims.dtypes[0]
    dims = ctx.dims(dtype=first, batch=min(ctx.profile.claims.batch_sizes))
    found: dict[str, int] = {}
    near = boundaries(ctx.profile, 256)

    def test(case: tuple[int, int]) -> None:
        held, more = case
        run = ctx.run(dims, masks=False)
        run.step(Ask(held))
        ids = run.log.append(more)
        keys, values = replace_dtype(run, ids, second)
        line = (
            f"keys, values = cache.update_and_fetch(*(rows.astype(mx.{second}) "
            f"for rows in tokens({listed(ids)})))"
        )
        run.lines.append(line)
        try:
            result = run.cache.update_and_fetch(keys, values)
            rows = run.unpack(result)[0]
            mx.eval(rows)
            outcome = f"returns {rows[1].dtype if run.is_triples(rows) else rows.dtype}"
        except REFUSALS as error:
            outcome = f"raises {type(error).__name__}"
        found.setdefault(outcome, held)
        if len(found) > 1:
            one, other = list(found)[:2]
            run.fail(
                f"{first} rows followed by {second} rows: what happens depends on how full the "
                "buffer is",
                expected=f"{one.replace('mlx.core.', '')}, as elsewhere",
                observed=f"{other.replace('mlx.core.', '')} after {held} tokens",
                code=[
                    "print(keys.dtype)",
                    "raise AssertionError('another rule than for other lengths')",
                ],
            )

    cases = [(b - d, more) for b in near for d, more in ((0, 1), (1, 2), (0, 4 * b + 40))]
    ctx.for_each([(1, 1), (2, 3), *cases], test)


def replace_dtype(run: Run, ids: list[int], dtype: str) -> tuple[mx.array, mx.array]:
    keys, values = run.tokens(ids)
    target = getattr(mx, dtype)
    return keys.astype(target), values.astype(target)


@check("UPD-16", needs=("UPD-1", "UPD-5"), skip=one_dtype_only)
def keys_and_values_keep_their_own_dtype(ctx: Context) -> None:
    if ctx.profile.capabilities.quantized:
        raise NotApplicable("returns triples (QNT-6)")
    if ctx.profile.capabilities.opaque:
        raise NotApplicable("returns handles, which have no dtype")
    first, second = ctx.profile.claims.dtypes[:2]

    def test(pair: tuple[str, str]) -> None:
        run = ctx.run(masks=False)
        for count in (2, 1):
            ids = run.log.append(count)
            rows = [r.astype(getattr(mx, d)) for r, d in zip(run.tokens(ids), pair, strict=True)]
            line = (
                f"keys, values = cache.update_and_fetch(tokens({ids})[0].astype(mx.{pair[0]}), "
                f"tokens({ids})[1].astype(mx.{pair[1]}))"
            )
            run.lines.append(line)
            try:
                got = run.unpack(run.cache.update_and_fetch(rows[0], rows[1]))
            except REFUSALS:
                return
            for name, returned, dtype in zip(("keys", "values"), got, pair, strict=True):
                if returned.dtype != getattr(mx, dtype):
                    run.fail(
                        f"{name} change their dtype where keys are {pair[0]}, values {pair[1]}",
                        expected=dtype,
                        observed=str(returned.dtype),
                        code=[f"assert {name}.dtype == mx.{dtype}, {name}.dtype"],
                    )

    ctx.for_each(((first, second), (second, first)), test)
