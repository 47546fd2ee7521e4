"""Checks of the state contract: ``state`` and truthiness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx

from conformance.checks._common import Held, data_free
from conformance.engine import BlockedBy, Context, check
from conformance.graph import pending
from conformance.parts import PartsRun
from conformance.strategies import Shape, boundaries
from conformance.subject import Profile
from conformance.trace import Ask, Operation, Run, Trim, plain, reachable_arrays

APPENDS = Shape(windows=False, arrays=False, trims=True)


def stores(profile: Profile) -> str | None:
    return (
        None if profile.capabilities.storage_backed else "does not store through update_and_fetch"
    )


def apply_if_it_stores(run: Run, operation: Operation) -> None:
    """Grow the cache where the contract says how; other kinds are judged as they are."""
    if run.profile.capabilities.storage_backed or run.virtual or isinstance(run, PartsRun):
        run.apply([operation])


def read_state(run: Run) -> Any:
    """The state, where it can be read at all."""
    try:
        return run.cache.state
    except Exception:
        raise BlockedBy("STATE-1") from None


@check("STATE-1", needs=("UPD-1", "REC-1"))
def state_can_be_evaluated(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            run.call("mx.eval(cache.state)", lambda: mx.eval(run.cache.state))

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.5)


@check("STATE-2", needs=("UPD-1",), skip=stores)
def no_graph_grows(ctx: Context) -> None:
    run = ctx.run(masks=False)
    sizes = []
    for _ in range(40):
        ctx.tried += 1
        run.step(Ask(1), evaluate=False)
        mx.eval(read_state(run))
        behind = [array for array in reachable_arrays(run.cache) if array.size]
        sizes.append(pending(behind).total())
    if sizes[-1] > sizes[len(sizes) // 2]:
        run.lines[:] = [
            "for t in range(40):",
            "    cache.update_and_fetch(*tokens([t]))",
            "    mx.eval(cache.state)",
        ]
        run.fail(
            "after each step state is evaluated, and the unevaluated graph grows all the same",
            expected=f"{sizes[0]} pending operations at most, as after the first step",
            observed=f"{sizes[-1]} pending operations after {len(sizes)} steps",
            code=["raise AssertionError('the cache holds arrays that state leaves out')"],
        )


@check("STATE-3", needs=("UPD-1", "REC-1"))
def state_is_a_plain_tree(ctx: Context) -> None:
    # The state of an empty cache is STATE-1's business, if it cannot even be read.
    empty = [None] if ctx.works("STATE-1") else []

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [*empty, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            odd = _odd_leaf(read_state(run))
            if odd is not None:
                run.fail(
                    "state holds an object that cannot be saved",
                    expected="mx.array, int, float, bool, str, None in tuples, lists and dicts",
                    observed=f"a {type(odd).__name__}",
                    code=[
                        "from mlx.utils import tree_flatten",
                        "for name, leaf in tree_flatten(cache.state):",
                        "    ok = (mx.array, int, float, bool, str, type(None))",
                        "    assert isinstance(leaf, ok), leaf",
                    ],
                )

    shape = replace(APPENDS, trims=bool(empty))
    ctx.for_traces(shape, test, masks=False, fraction=0.3)


def _odd_leaf(tree: Any) -> Any:
    """A leaf that is none of the allowed types; None if there is none."""
    if tree is None or isinstance(tree, (mx.array, int, float, bool, str)):
        return None
    if isinstance(tree, dict):
        tree = [*tree, *tree.values()]
    if isinstance(tree, (tuple, list)):
        return next((odd for odd in map(_odd_leaf, tree) if odd is not None), None)
    return tree


@check("STATE-4", needs=("UPD-1", "REC-1"))
def reading_state_changes_nothing(ctx: Context) -> None:
    # The state of an empty cache is STATE-1's business, if it cannot even be read.
    empty = [None] if ctx.works("STATE-1") else []

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [*empty, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            before, at = run.observe(state=False, masks=False), len(run.lines)
            first, again = plain(read_state(run)), plain(read_state(run))
            run.lines.append("cache.state")
            run.unchanged("reading state", before, at)
            if first != again:
                run.fail(
                    "two readings of state differ",
                    expected=str(first)[:80],
                    observed=str(again)[:80],
                    code=["assert str(cache.state) == str(cache.state), cache.state"],
                )

    shape = replace(APPENDS, trims=bool(empty))
    ctx.for_traces(shape, test, masks=False, fraction=0.3)


@check("STATE-5", needs=("UPD-1", "REC-1"))
def cache_is_truthy(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            truth = run.read("bool(cache)", lambda: bool(run.cache))
            if truth is not True:
                run.fail(
                    "the cache is falsy, so `if cache and ...` takes it for absent",
                    expected="bool(cache) is True",
                    observed="False",
                    code=["assert cache, 'mlx-lm would drop its mask'"],
                )

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.3)


@check("STATE-6", needs=("UPD-1",), skip=stores)
def held_state_stays(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        held = Held(run, "a state that was read earlier")
        for operation in operations:
            run.apply([operation])
            held.check()
            if isinstance(operation, Ask):
                held.keep("cache.state", read_state(run))

    near = [number for number in boundaries(ctx.profile, 64) if not data_free(ctx.profile)]
    listed: list[list[Operation]] = [[Ask(4), Trim(2), Ask(2)]]
    listed += [[Ask(number), Ask(1)] for number in near]
    ctx.for_each(listed, lambda trace: test(ctx.run(masks=False), trace))
    ctx.for_traces(APPENDS, test, masks=False, fraction=0.5)
