"""Checks of the state contract: ``state`` and truthiness."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.checks._common import Held, data_free
from conformance.engine import Context, check
from conformance.graph import pending
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
    if run.profile.capabilities.storage_backed or run.virtual:
        run.apply([operation])


def read_state(run: Run) -> Any:
    return run.read("cache.state", lambda: run.cache.state)


@check("STATE-1")
def state_can_be_evaluated(ctx: Context) -> None:
    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [None, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            run.call("mx.eval(cache.state)", lambda: mx.eval(run.cache.state))

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.5)


@check("STATE-2", skip=stores)
def no_graph_grows(ctx: Context) -> None:
    run = ctx.run(masks=False)
    sizes = []
    for _ in range(40):
        ctx.tried += 1
        run.step(Ask(1))
        run.call("mx.eval(cache.state)", lambda: mx.eval(run.cache.state))
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


@check("STATE-3")
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

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.3)


def _odd_leaf(tree: Any) -> Any:
    """A leaf that is none of the allowed types; None if there is none."""
    if tree is None or isinstance(tree, (mx.array, int, float, bool, str)):
        return None
    if isinstance(tree, dict):
        tree = [*tree, *tree.values()]
    if isinstance(tree, (tuple, list)):
        return next((odd for odd in map(_odd_leaf, tree) if odd is not None), None)
    return tree


@check("STATE-4")
def reading_state_changes_nothing(ctx: Context) -> None:
    # The state of an empty cache is STATE-1's business, if it cannot even be read.
    empty = [None] if ctx.works("STATE-1") else []

    def test(run: Run, operations: list[Operation]) -> None:
        for operation in [*empty, *operations]:
            if operation is not None:
                apply_if_it_stores(run, operation)
            before, first = run.observe(state=False), plain(read_state(run))
            again, after = plain(read_state(run)), run.observe(state=False)
            run.lines.append("cache.state")
            changed = [name for name in before if after[name] != before[name]]
            if first != again or changed:
                run.fail(
                    f"reading state changes {changed[0] if changed else 'state itself'}",
                    expected=str(before[changed[0]] if changed else first)[:80],
                    observed=str(after[changed[0]] if changed else again)[:80],
                    code=["print(cache.state)"],
                )

    ctx.for_traces(APPENDS, test, masks=False, fraction=0.3)


@check("STATE-5")
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


@check("STATE-6", skip=stores)
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
