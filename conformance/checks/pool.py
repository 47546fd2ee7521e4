"""Checks of the pool contract: storage by slot, and caches whose prefix lies in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from conformance import target as targets
from conformance.checks.position import offset_is
from conformance.checks.update import retained
from conformance.checks.whole import whole
from conformance.engine import Context, NotApplicable, check
from conformance.program import listed
from conformance.strategies import Shape, traces
from conformance.subject import Profile
from conformance.tags import LARGEST_TOKEN, FloatArray, to_numpy
from conformance.trace import REFUSALS, Ask, EndOfTrace, Operation, Run, Violation
from kvproto import capabilities

SOME = Shape(tokens=20, steps=4)
REFUSED = (*REFUSALS, IndexError)


def last_slot(ctx: Context) -> int:
    """The last slot of the pool under test."""
    slots = ctx.profile.claims.slots
    if slots < 3:
        raise NotApplicable("does not declare its slots (claim slots=N)")
    return slots - 1


def some_slots(ctx: Context) -> st.SearchStrategy[list[int]]:
    """Different slots in any order."""
    return st.lists(st.integers(1, last_slot(ctx)), max_size=8, unique=True)


def slots_code(slots: Sequence[int]) -> str:
    return f"mx.array({listed(slots)}, mx.int32)" if len(slots) else "mx.array([], mx.int32)"


def index(slots: Sequence[int]) -> mx.array:
    return mx.array(list(slots), mx.int32)


def write(run: Run, pool: Any, layer: int, slots: Sequence[int], ids: Sequence[int]) -> None:
    """Put tokens into slots of the pool."""
    keys, values = (rows[0].transpose(1, 0, 2) for rows in run.tokens(ids))
    run.call(
        f"pool.set_kv({layer}, {slots_code(slots)}, "
        f"*(rows[0].transpose(1, 0, 2) for rows in tokens({listed(ids)})))",
        lambda: pool.set_kv(layer, index(slots), keys, values),
    )


def read(run: Run, pool: Any, layer: int, slots: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """What the pool has in slots, as numbers of shape (S, H, D)."""
    line = f"keys, values = pool.get_kv({layer}, {slots_code(slots)})"
    found = run.call(line, lambda: pool.get_kv(layer, index(slots)))
    dims = run.dims
    for name, rows, width in zip(
        ("keys", "values"), found, (dims.key_dim, dims.value_dim), strict=True
    ):
        expected = (len(slots), dims.heads, width)
        if tuple(rows.shape) != expected or rows.dtype != dims.mx_dtype:
            run.fail(
                f"get_kv gives {name} of another shape or dtype",
                expected=f"{expected}, {dims.dtype}",
                observed=f"{tuple(rows.shape)}, {rows.dtype}",
                code=[f"assert {name}.shape == {expected}, {name}.shape"],
            )
    return to_numpy(found[0]), to_numpy(found[1])


def whole_pool(run: Run, pool: Any) -> list[tuple[FloatArray, FloatArray]]:
    """Every token slot of every layer; once it is read, the program knows nothing of it."""
    claims = run.profile.claims
    lines = len(run.lines)
    found = [read(run, pool, layer, range(1, claims.slots)) for layer in range(claims.pool_layers)]
    del run.lines[lines:]
    return found


def maker(profile: Profile) -> tuple[str, str, Callable[..., Any]]:
    """How a pool makes the cache of a request: imports, the function in a program, the function.

    Raises:
        NotApplicable: it does not, and no other maker was claimed.
    """
    named = profile.claims.backed_cache
    if named:
        parsed = targets.parse(named)
        found = targets.load_object(parsed, Path.cwd())
        return "\n".join(parsed.imports), f"{parsed.name}(pool, ", found
    if "backed_cache" in profile.capabilities.members:
        return (
            "",
            "pool.backed_cache(",
            lambda pool, layer, slots, prefix: pool.backed_cache(layer, slots, prefix),
        )
    raise NotApplicable("makes no caches (no backed_cache method; claim backed_cache='mod:Name')")


def request(ctx: Context, slots: Sequence[int], prefix: int) -> tuple[Run, Any]:
    """A run on the cache of a request whose first tokens were put into the pool, and the pool."""
    imports, called, make = maker(ctx.profile)
    run = ctx.run()
    pool = run.cache
    run.imports = imports.splitlines()
    ids = run.log.append(prefix)
    layer = run.profile.claims.pool_layers - 1
    if prefix:
        write(run, pool, layer, slots[:prefix], ids)
    line = f"cache = {called}{layer}, {slots_code(slots)}, {prefix})"
    run.cache = run.call(line, lambda: make(pool, layer, index(slots), prefix))
    run.profile = replace(run.profile, capabilities=capabilities(run.cache))
    run.has_mask = "make_mask" in run.profile.capabilities.members
    return run, pool


def must_be_refused(run: Run, error: Exception | None, told: str) -> None:
    """Fail unless an attempted call was refused."""
    if not isinstance(error, REFUSED):
        run.fail(
            told,
            expected="ValueError",
            observed="no exception" if error is None else f"{type(error).__name__}: {error}",
            code=["raise AssertionError('no ValueError')"],
        )


def no_request(ctx: Context, slots: Sequence[int], prefix: int, told: str) -> None:
    """Fail unless no request can be made of these slots, or its first update is refused."""
    imports, called, make = maker(ctx.profile)
    run = ctx.run()
    pool = run.cache
    run.imports = imports.splitlines()
    error = run.attempt(
        f"{called}0, {slots_code(slots)}, {prefix}).update_and_fetch(*tokens([0]))",
        lambda: make(pool, 0, index(slots), prefix).update_and_fetch(*run.tokens([0])),
    )
    must_be_refused(run, error, told)


def all_slots(ctx: Context) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(1, last_slot(ctx) + 1))


def prefixes(ctx: Context) -> st.SearchStrategy[tuple[list[int], int]]:
    """All slots in some order, and how many of them hold the prefix."""
    return st.tuples(all_slots(ctx), st.integers(0, last_slot(ctx)))


@check("POOL-1")
def slots_keep_their_rows(ctx: Context) -> None:
    last = last_slot(ctx)
    layers = ctx.profile.claims.pool_layers

    def test(drawn: tuple[list[tuple[int, list[int]]], list[int]]) -> None:
        writes, order = drawn
        run = ctx.run(masks=False)
        pool = run.cache
        expected = whole_pool(run, pool)
        for layer, slots in writes:
            if len(run.log.ids) + len(slots) >= LARGEST_TOKEN[run.dims.dtype]:
                raise EndOfTrace("no more numbers that the dtype holds")
            ids = run.log.append(len(slots))
            write(run, pool, layer, slots, ids)
            for kept, rows in zip(expected[layer], run.tokens(ids), strict=True):
                kept[[slot - 1 for slot in slots]] = to_numpy(rows)[0].transpose(1, 0, 2)
        for layer in range(layers):
            for name, kept, got in zip(
                ("keys", "values"), expected[layer], read(run, pool, layer, order), strict=True
            ):
                wanted = kept[[slot - 1 for slot in order]]
                wrong = np.flatnonzero((got != wanted).any(axis=(1, 2)))
                if wrong.size:
                    place = int(wrong[0])
                    run.fail(
                        f"layer {layer}, slot {order[place]} does not hold what was written last",
                        expected=_shown(wanted[place]),
                        observed=_shown(got[place]),
                        code=[
                            f"got = {name}[{place}].tolist()",
                            f"assert got == {wanted[place].tolist()}, got",
                        ],
                    )

    one = st.tuples(st.integers(0, layers - 1), some_slots(ctx))
    order = st.lists(st.integers(1, last), min_size=1, max_size=2 * last)
    ctx.for_all(st.tuples(st.lists(one, min_size=1, max_size=5), order), test)


def _shown(row: FloatArray) -> str:
    return f"the row of token {row[0, 0]:g}" if row.any() else "an unused row"


@check("POOL-2", needs=("POOL-1",))
def wrong_slots_are_refused(ctx: Context) -> None:
    last = last_slot(ctx)

    def refused(slots: Sequence[int], call: str) -> None:
        run = ctx.run(masks=False)
        pool = run.cache
        ids = run.log.append(len(slots))
        before = whole_pool(run, pool)
        keys, values = (rows[0].transpose(1, 0, 2) for rows in run.tokens(ids))
        if call == "set_kv":
            line = f"pool.set_kv(0, {slots_code(slots)}, *(r[0].transpose(1, 0, 2) for r in "
            line += f"tokens({listed(ids)})))"
            error = run.attempt(line, lambda: pool.set_kv(0, index(slots), keys, values))
        else:
            line = f"pool.get_kv(0, {slots_code(slots)})"
            error = run.attempt(line, lambda: pool.get_kv(0, index(slots)))
        # Nothing is evaluated here: a write past the last slot may hit foreign memory.
        must_be_refused(run, error, f"{call} takes slots {list(slots)} of 1 to {last}")
        after = whole_pool(run, pool)
        for one, other in zip(before, after, strict=True):
            if any((a != b).any() for a, b in zip(one, other, strict=True)):
                run.fail(
                    f"{call} refuses slots {list(slots)}, and writes the others all the same",
                    expected="nothing written",
                    observed="a row changed",
                    code=[
                        f"keys, values = pool.get_kv(0, {slots_code(range(1, last + 1))})",
                        "assert not (keys.any() or values.any()), 'a row was written'",
                    ],
                )

    for wrong in (-1, 0, last + 1, last + 7):
        for slots in ([wrong], [1, wrong], [wrong, 2]):
            ctx.for_each([slots], lambda slots: refused(slots, "set_kv"))
            if wrong:
                ctx.for_each([slots], lambda slots: refused(slots, "get_kv"))

    try:
        maker(ctx.profile)
    except NotApplicable:
        return

    def backed(wrong: int) -> None:
        slots = [1, wrong]
        no_request(ctx, slots, 2, f"a cache is made of slots {slots} of 1 to {last}")

    ctx.for_each((-1, 0, last + 1), backed)


@check("POOL-3", needs=("POOL-1",))
def backed_is_as_fed(ctx: Context) -> None:
    maker(ctx.profile)

    def test(drawn: tuple[tuple[list[int], int], list[Operation]]) -> None:
        (slots, prefix), operations = drawn
        run, _ = request(ctx, slots, prefix)
        offset_is(run, [prefix], f"with a prefix of {prefix} tokens")
        for operation in [*operations, Ask(2)]:
            before = run.offset_value()
            try:
                run.apply([operation])
            except Violation as violation:
                later = run.steps and isinstance(violation.__cause__, REFUSALS)
                if later and run.offset_value() == before:
                    raise EndOfTrace("serves a single update, and refuses the second") from None
                raise
            if isinstance(operation, Ask):
                whole(run.steps[-1])

    ctx.for_all(st.tuples(prefixes(ctx), traces(ctx.profile, SOME)), test)


@check("POOL-4", needs=("POOL-1", "POOL-3"))
def pool_and_cache_are_apart(ctx: Context) -> None:
    maker(ctx.profile)
    last = last_slot(ctx)

    def test(drawn: tuple[list[int], int, int]) -> None:
        slots, prefix, count = drawn
        run, pool = request(ctx, slots, prefix)
        before = whole_pool(run, pool)
        # Not evaluated: what is written to the pool now comes before the graph of this step runs.
        step = run.step(Ask(count), evaluate=False)
        after = whole_pool(run, pool)
        for layer, (one, other) in enumerate(zip(before, after, strict=True)):
            if any((a != b).any() for a, b in zip(one, other, strict=True)):
                changed = np.flatnonzero((one[0] != other[0]).any(axis=(1, 2)))
                slot = int(changed[0]) + 1 if changed.size else 1
                wanted = one[0][slot - 1].tolist()
                run.fail(
                    f"update_and_fetch writes the pool: layer {layer}",
                    expected="the pool as it was",
                    observed=f"slot {slot} changed",
                    code=[
                        f"got = pool.get_kv({layer}, mx.array([{slot}]))[0][0].tolist()",
                        f"assert got == {wanted}, got",
                    ],
                )
        layer = run.profile.claims.pool_layers - 1
        write(run, pool, layer, slots, range(100, 100 + last))
        step.lines = list(run.lines)
        retained(step)
        try:
            step = run.step(Ask(1))
        except Violation as violation:
            if isinstance(violation.__cause__, REFUSALS):
                raise EndOfTrace("serves a single update, and refuses the second") from None
            raise
        retained(step)

    ctx.for_all(st.tuples(all_slots(ctx), st.integers(0, last), st.integers(1, 3)), test)


@check("POOL-5", needs=("POOL-1", "POOL-3"))
def dtype_and_length_are_kept(ctx: Context) -> None:
    maker(ctx.profile)
    last = last_slot(ctx)

    def other_dtype(drawn: tuple[str, int]) -> None:
        dtype, prefix = drawn
        run, _ = request(ctx, range(1, last + 1), prefix)
        wanted = getattr(mx, dtype)
        ids = run.log.append(2)
        keys, values = (rows.astype(wanted) for rows in run.tokens(ids))
        line = f"*(rows.astype(mx.{dtype}) for rows in tokens({ids}))"
        run.lines.append(f"keys, values = cache.update_and_fetch({line})")
        try:
            got = run.unpack(run.cache.update_and_fetch(keys, values))
        except REFUSALS:
            return
        for name, rows in zip(("keys", "values"), got, strict=True):
            if rows.dtype != wanted:
                run.fail(
                    f"{name} come back in another dtype than that of the chunk, by the pool's",
                    expected=dtype,
                    observed=str(rows.dtype),
                    code=[f"assert {name}.dtype == mx.{dtype}, {name}.dtype"],
                )

    own = ctx.dims().dtype
    others = [dtype for dtype in LARGEST_TOKEN if dtype != own]
    ctx.for_each([(dtype, prefix) for dtype in others for prefix in (0, 2)], other_dtype)

    def too_long(drawn: tuple[int, int]) -> None:
        count, prefix = drawn
        told = f"a prefix of {prefix} tokens is taken from {count} slots"
        no_request(ctx, range(1, count + 1), prefix, told)

    ctx.for_each(((0, 1), (2, 3), (2, last)), too_long)
