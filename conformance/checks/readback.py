"""Checks of the read-back contract: ``keys_and_values``, ``keys`` and ``values``."""

from __future__ import annotations

from itertools import product

import mlx.core as mx
import numpy as np

from conformance.checks.update import numbers_code
from conformance.engine import Context, check
from conformance.graph import pending
from conformance.helpers import arrays
from conformance.program import ranges
from conformance.strategies import Shape
from conformance.subject import Profile
from conformance.tags import KEYS, VALUES, IntArray
from conformance.trace import Ask, Operation, Run, Trim, Violation

TRIMMED = Shape(windows=False, arrays=False, trims=True)


def no_read_back(profile: Profile) -> str | None:
    return None if "keys_and_values" in profile.capabilities.members else "has no keys_and_values"


def read_back(run: Run, *, strict: bool = True) -> IntArray:
    """Call keys_and_values; the token numbers of the keys, (B, heads, L).

    With ``strict``, fail unless every head and the values of a row hold the same tokens.
    """
    result = run.call("keys, values = cache.keys_and_values()", run.cache.keys_and_values)
    keys, values = run.unpack(result)
    every = list(range(run.log._next))
    ids = run.identify(keys, KEYS, every)
    for name, found in (("keys", ids), ("values", run.identify(values, VALUES, every))):
        if not strict or (name == "values" and not run.dims.value_dim):
            continue
        for row in range(len(ids)):
            # A policy that evicts may keep other tokens in each head.
            wanted = ids[row] if run.profile.claims.lossy else ids[row, :1]
            if found.shape == ids.shape and (found[row] == wanted).all():
                continue
            first = wanted[0].tolist()
            run.fail(
                f"keys_and_values() gives {name} of other tokens than the keys of "
                f"{'the same' if run.profile.claims.lossy else 'its first'} head",
                expected=f"tokens {ranges(first)}",
                observed=f"tokens {ranges(found[row, 0].tolist())}",
                code=[
                    f"assert numbers(values, {row}, 1) == numbers(keys, {row}) == {first}, {name}"
                ],
            )
    return ids


@check("READ-1", needs=("UPD-1", "UPD-2"), skip=no_read_back)
def gives_what_the_update_returned(ctx: Context) -> None:
    lossy = ctx.profile.claims.lossy

    def test(run: Run, operations: list[Operation]) -> None:
        last = np.empty((run.dims.batch, run.dims.heads, 0), dtype=np.int64)
        for operation in operations:
            run.apply([operation])
            if isinstance(operation, Ask):
                last = run.steps[-1].key_ids
            if not run.log.ids:
                continue  # empty again: READ-4
            before, at = run.observe(state=False), len(run.lines)
            found = read_back(run)
            for row, head in product(range(run.dims.batch), range(run.dims.heads)):
                got = found[row, head].tolist()
                expected = [n for n in last[row, head].tolist() if n in run.log.ids]
                if lossy:  # it may have evicted since
                    expected = [number for number in expected if number in got]
                if run.log.left_padding[row]:  # some of its columns are no tokens, or hold others
                    got = [number for number in got if number in run.log.ids]
                if got == expected:
                    continue
                trimmed = " and what was trimmed since" if isinstance(operation, Trim) else ""
                numbers = numbers_code(run, "keys", row, head if lossy else None)
                run.fail(
                    f"keys_and_values() is not what the last update returned{trimmed}",
                    expected=f"tokens {ranges(expected)}",
                    observed=f"tokens {ranges(got)}",
                    code=[f"assert {numbers} == {expected}, keys.shape"],
                )
            run.unchanged("keys_and_values()", before, at)

    ctx.for_traces(TRIMMED, test, masks=False)


@check("READ-2", needs=("UPD-1", "UPD-2"), skip=no_read_back)
def nothing_past_offset_shows(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in operations:
            run.apply([operation])
            if not run.log.ids:
                continue  # empty again: READ-4
            got = read_back(run, strict=False)[0, 0].tolist()
            stale = [number for number in got if number not in run.log.ids]
            if stale:
                run.fail(
                    f"keys_and_values() shows rows past offset {run.log.length}",
                    expected=f"tokens {ranges(run.log.ids)} at most",
                    observed=f"tokens {ranges(got)}",
                    code=[
                        f"assert {{*{numbers_code(run, 'keys')}}} <= {{*{run.log.ids}}}, keys.shape"
                    ],
                )

    ctx.for_traces(TRIMMED, test, masks=False)


def no_buffers(profile: Profile) -> str | None:
    has = {"keys", "values"} <= profile.capabilities.members
    if not has or profile.capabilities.quantized:
        return "has no plain keys and values attributes"
    return None if "state" in profile.capabilities.members else "has no state"


@check("READ-3", needs=("UPD-1", "STATE-1"), skip=no_buffers)
def buffers_can_be_written(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    run.step(Ask(3))
    mx.eval(run.cache.state)
    marker = mx.arctan(mx.array([1.0]))
    run.lines.append("marker = mx.arctan(mx.array([1.0]))")
    run.call(
        "cache.keys = mx.depends(cache.keys, marker)",
        lambda: setattr(run.cache, "keys", mx.depends(run.cache.keys, marker)),
    )
    behind = pending(arrays(run.cache.state))
    if "ArcTan" not in behind:
        run.fail(
            "what is written to keys is not on the graph that evaluating state runs",
            expected="the dependency is evaluated with state",
            observed="it is not part of state",
            code=[
                "from io import StringIO",
                "graph = StringIO()",
                "mx.export_to_dot(graph, *arrays(cache.state))",
                "assert 'ArcTan' in graph.getvalue()",
            ],
        )


@check("READ-4", skip=no_read_back)
def empty_read_back_is_clear(ctx: Context) -> None:
    run = ctx.run(masks=False)
    ctx.tried += 1
    line = "keys, values = cache.keys_and_values()"
    run.lines.append(line)
    try:
        keys, _ = run.unpack(run.cache.keys_and_values())
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        run.fail(
            "keys_and_values() on an empty cache fails without saying why",
            expected="zero rows, or an error that names the class",
            observed=f"{type(error).__name__}: {error}",
        )
    except Violation:
        raise
    except Exception as error:
        name = type(run.cache).__name__
        if name not in str(error):
            run.fail(
                "keys_and_values() on an empty cache raises without naming the class",
                expected=f"a message with {name}",
                observed=f"{type(error).__name__}: {error}"[:100],
            )
        return
    rows = keys[0] if run.is_triples(keys) else keys
    if rows.shape[2]:
        run.fail(
            "keys_and_values() on an empty cache gives rows",
            expected="zero rows",
            observed=f"{rows.shape[2]} rows",
            code=["assert keys.shape[2] == 0, keys.shape"],
        )
