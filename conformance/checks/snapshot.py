"""Checks of the snapshot contract: a store is driven with real caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from conformance import target as targets
from conformance.checks.copying import fork, hand_over
from conformance.checks.whole import whole
from conformance.engine import Context, NotApplicable, check
from conformance.program import listed
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


def stores_none(profile: Profile) -> str | None:
    lacks = not {"store_cache", "restore_cache"} <= profile.capabilities.members
    return "has no store_cache and restore_cache" if lacks else None


@check("SNAP-1", skip=stores_none)
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


@check("SNAP-2", needs=("SNAP-1",), skip=stores_none)
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


FORWARD = """def forward(caches, ids):
    for one in caches:
        one.update_and_fetch(*tokens(ids))"""

FAILING = """def failing(caches, ids):
    forward(caches, ids[:1])
    raise MemoryError("between two tokens")"""


def maker(ctx: Context, kept: Any) -> tuple[list[str], str, Callable[..., Any]]:
    """How a transaction is made: imports, the function in a program, the function.

    Raises:
        NotApplicable: the store makes none, and no other maker was claimed.
    """
    named = ctx.profile.claims.transaction
    if named:
        parsed = targets.parse(named)
        return list(parsed.imports), parsed.name, targets.load_object(parsed, Path.cwd())
    if "transaction" in ctx.profile.capabilities.members:
        return [], "store.transaction", kept.transaction
    raise NotApplicable("makes no transactions (no transaction; claim transaction='mod:Name')")


def in_transaction(
    ctx: Context, profile: Profile, before: list[Operation], count: int, *, fails: bool
) -> tuple[Run, Any, list[Any]]:
    """A run whose cache is in a transaction of ``count`` proposed tokens that has begun.

    The proposed tokens are those that the log numbers next. They were fed to the copy, which was
    judged as any cache is.
    """
    run, kept = begun(ctx, profile)
    imports, called, make = maker(ctx, kept)
    run.imports += imports
    run.apply(before)
    ids = list(range(run.log._next, run.log._next + count))

    def forward(caches: Sequence[Any], ids: Sequence[int]) -> None:
        for one in caches:
            one.update_and_fetch(*run.tokens(ids))

    def failing(caches: Sequence[Any], ids: Sequence[int]) -> None:
        forward(caches, ids[:1])
        raise MemoryError("between two tokens")

    caches = [run.cache]
    run.lines += [FORWARD, *([FAILING] if fails else []), "caches = [cache]"]
    feeds = "failing" if fails else "forward"
    transaction = run.call(
        f"transaction = {called}(caches, {listed(ids)}, {feeds})",
        lambda: make(caches, ids, failing if fails else forward),
    )
    copies = run.call("copies = transaction.begin()", transaction.begin)
    copy = fork(run, "(cache,) = copies", copies[0])
    copy.log._next = run.log._next
    whole(copy.step(Ask(count)))
    hand_over(copy, run)
    return run, transaction, caches


def is_over(run: Run, transaction: Any) -> None:
    """Fail unless the transaction, which has served, refuses all that would begin it anew."""
    for call, function in (
        ("begin()", transaction.begin),
        ("commit(1)", partial(transaction.commit, 1)),
    ):
        error = run.attempt(f"transaction.{call}", function)
        if not isinstance(error, RuntimeError):
            run.fail(
                f"a transaction that has served takes {call}",
                expected="RuntimeError",
                observed="no exception" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no RuntimeError')"],
            )


@check("SNAP-3")
def transactions_take_or_drop(ctx: Context) -> None:
    maker(ctx, ctx.profile.subject.factory())
    for profile in stored_profiles(ctx):
        some = traces(profile, SOME)
        empty: st.SearchStrategy[list[Operation]] = st.just([])

        def test(drawn: Any, profile: Profile = profile) -> None:
            before, count, taken, how, after = drawn
            taken = min(taken, count)
            run, transaction, caches = in_transaction(
                ctx, profile, before, count, fails=how == "fail"
            )
            was, at = run.observe(), len(run.lines)
            if how == "abort":
                run.call("transaction.abort()", transaction.abort)
                run.unchanged("abort", was, at)
            elif how == "fail":
                error = run.attempt(
                    f"transaction.commit({taken or 1})", lambda: transaction.commit(taken or 1)
                )
                if error is None:
                    run.fail(
                        "a commit that fails raises nothing",
                        expected="what feeding the tokens raised",
                        observed="no exception",
                        code=["raise AssertionError('no exception')"],
                    )
                run.cache = caches[0]
                run.unchanged("a commit that fails", was, at)
            else:
                run.call(f"transaction.commit({taken})", lambda: transaction.commit(taken))
                run.lines.append("(cache,) = caches")
                run.cache = caches[0]
                run.log.append(taken)
            is_over(run, transaction)
            go_on(run, after)

        ctx.for_all(
            st.tuples(
                empty | some,
                st.integers(1, 6),
                st.integers(0, 6),
                st.sampled_from(("commit", "abort", "fail")),
                some,
            ),
            test,
            fraction=0.8,
        )
