"""Checks of the snapshot contract: a store is driven with real caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from conformance.checks.copying import fork
from conformance.checks.whole import whole
from conformance.engine import Context, NotApplicable, check
from conformance.strategies import Shape, traces
from conformance.subject import Profile, examine, subjects_from_target
from conformance.trace import Ask, Operation, Run

SOME = Shape(tokens=24, steps=4, windows=False, arrays=False)
INDEX = 3


def stored_profiles(ctx: Context) -> list[Profile]:
    """The caches that the store is tried with: those that were claimed, and restore."""
    found = []
    for text in ctx.profile.claims.stores:
        (subject,) = subjects_from_target(text, directory=Path.cwd())
        profile = examine(subject)
        if not profile.capabilities.storage_backed:
            raise NotApplicable(f"the claim stores names {text}, which stores no keys and values")
        found.append(profile)
    if not found:
        raise NotApplicable("names no caches to be stored (claim stores=['module:Name(...)'])")
    return found


def begun(ctx: Context, profile: Profile) -> tuple[Run, Any]:
    """A run of a cache beside a store, and the store."""
    run = Run(profile)
    run.imports = list(profile.subject.imports)
    run.lines.append(f"cache = {profile.subject.call}")
    return run, ctx.profile.subject.factory()


def store(run: Run, kept: Any) -> None:
    run.call(
        f"store.store_cache({INDEX}, [cache], [0])",
        lambda: kept.store_cache(INDEX, [run.cache], [0]),
    )


def restore(run: Run, kept: Any) -> Any:
    return run.call(
        f"found = store.restore_cache({INDEX}, [cache])",
        lambda: kept.restore_cache(INDEX, [run.cache]),
    )


def restored(run: Run, kept: Any, *, fed: int = 0) -> Run:
    """A run that goes on with another cache of the same class, restored; ``run`` stays."""
    line = f"cache = {run.profile.subject.call}"
    other = fork(run, line, run.profile.subject.factory())
    if fed:
        ids = list(range(500, 500 + fed))
        other.call(
            f"_ = cache.update_and_fetch(*tokens({ids}))",
            lambda: other.cache.update_and_fetch(*other.tokens(ids)),
        )
    said = restore(other, kept)
    if said is False:
        other.fail(
            "restore_cache finds nothing although something is stored",
            expected="True",
            observed="False",
            code=["assert found is not False"],
        )
    return other


def go_on(run: Run, operations: list[Operation]) -> None:
    for operation in [*operations, Ask(1)]:
        run.apply([operation])
        if isinstance(operation, Ask):
            whole(run.steps[-1])


@check("SNAP-1")
def snapshots_stay(ctx: Context) -> None:
    for profile in stored_profiles(ctx):

        def test(drawn: Any, profile: Profile = profile) -> None:
            before, of_source, of_copy = drawn
            run, kept = begun(ctx, profile)
            run.apply(before)
            store(run, kept)
            at = Run(profile)
            at.log.ids, at.log._next = list(run.log.ids), run.log._next + 200
            run.apply(of_source)
            for _ in range(2):
                at.lines, at.imports, at.cache = run.lines, run.imports, run.cache
                other = restored(at, kept)
                go_on(other, of_copy)
                run = other
                at.log._next += 200

        some = traces(profile, SOME)
        empty: st.SearchStrategy[list[Operation]] = st.just([])
        ctx.for_all(st.tuples(empty | some, some, some), test, fraction=0.4)


@check("SNAP-2", needs=("SNAP-1",))
def position_comes_back(ctx: Context) -> None:
    for profile in stored_profiles(ctx):

        def test(drawn: Any, profile: Profile = profile) -> None:
            before, fed, after = drawn
            run, kept = begun(ctx, profile)
            run.apply(before)
            store(run, kept)
            go_on(restored(run, kept, fed=fed), after)

        some = traces(profile, SOME)
        empty: st.SearchStrategy[list[Operation]] = st.just([])
        ctx.for_all(st.tuples(empty | some, st.integers(0, 12), some), test, fraction=0.4)

        run, kept = begun(ctx, profile)
        run.step(Ask(3))
        said = restore(run, kept)
        ctx.tried += 1
        if said is not False:
            run.fail(
                "restore_cache does not say False although nothing is stored",
                expected="False",
                observed=repr(said),
                code=["assert found is False, found"],
            )
        whole(run.step(Ask(1)))
