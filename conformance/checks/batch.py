"""Checks of the batch contract: merge, extend, filter, extract, prepare, finalize."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from hypothesis import strategies as st

from conformance.batch import Batch, batch_dims
from conformance.checks._common import Held
from conformance.engine import Context, NotApplicable, check
from conformance.subject import Profile
from conformance.trace import plain
from kvproto.visibility import Sinks, SlidingWindow

BASICS = ("UPD-1", "UPD-2", "MASK-1", "MASK-2", "MASK-3", "MASK-4")


def constructed(profile: Profile) -> bool:
    return profile.claims.left_padding is not None


def lacks(*names: str) -> Callable[[Profile], str | None]:
    """Skip unless a batch of the subject can be made and has these members."""

    def skip(profile: Profile) -> str | None:
        if profile.capabilities.quantized:
            return "batches of quantised rows are not checked yet"
        if not constructed(profile):
            if "merge" not in profile.capabilities.members:
                return "has no merge, and is no batch"
            try:
                batch: object = Batch.merged(profile, [1, 1], batch_dims(profile)).cache
            except Exception:
                return None  # BATCH-1 says what is wrong
            missing = [name for name in names if not hasattr(batch, name)]
        else:
            missing = [name for name in names if name not in profile.capabilities.members]
        return f"the batch has no {missing[0]}" if missing else None

    return skip


def lengths_of(profile: Profile, *, empty: bool = False) -> st.SearchStrategy[list[int]]:
    """Lengths of the members of a merge: shorter and longer than a window, if there is one."""
    visibility = profile.claims.visibility
    most = 2 * visibility.window if isinstance(visibility, (SlidingWindow, Sinks)) else 12
    return st.lists(st.integers(0 if empty else 1, min(most, 40)), min_size=1, max_size=4)


def make(ctx: Context, lengths: list[int]) -> Batch:
    """A batch: merged of members of these lengths, or, for a class that is constructed as a
    batch, filled with a first chunk."""
    dims = batch_dims(ctx.profile)
    if not constructed(ctx.profile):
        return Batch.merged(ctx.profile, lengths, dims)
    padding = ctx.profile.claims.left_padding or ()
    return Batch.constructed(ctx.profile, max(max(lengths), max(padding)), dims)


def beside(ctx: Context, batch: Batch, lengths: list[int]) -> Batch:
    """Another batch in the same program."""
    options = {"name": "other", "run": batch.run, "numbers": batch.numbers}
    dims = batch.run.dims
    if not constructed(ctx.profile):
        return Batch.merged(ctx.profile, lengths, dims, **options)  # type: ignore[arg-type]
    padding = ctx.profile.claims.left_padding or ()
    count = max(max(lengths), max(padding)) if max(lengths) else 0
    return Batch.constructed(ctx.profile, count, dims, **options)  # type: ignore[arg-type]


# Chunks fed to a running batch are BATCH-1's; the other checks go on by single tokens, as decoding
# does, so that one fault does not look like several.
COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@check("BATCH-1", needs=BASICS, skip=lacks())
def rows_are_as_alone(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int]]) -> None:
        lengths, counts = drawn
        batch = make(ctx, lengths)
        batch.check_offset("after merge" if batch.members else "after the first chunk")
        for count in [*counts, 1]:
            batch.step(count)
            batch.check_offset(f"after an append of {count}")

    ctx.for_each([([3, 3], [1]), ([2, 2, 5], [2])], test)
    ctx.for_all(st.tuples(lengths_of(ctx.profile), COUNTS), test)


@check("BATCH-2", needs=BASICS, skip=lacks("extract"))
def extract_gives_a_member_back(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int], list[int]]) -> None:
        lengths, counts, after = drawn
        batch = make(ctx, lengths)
        for _ in counts:
            batch.step(1)
        for index in range(len(batch.rows)):
            row = batch.extract(index)
            if batch.members and type(row.cache) is not type(batch.members[0]):
                batch.run.fail(
                    "extract gives a cache of another class than the members of the merge",
                    expected=type(batch.members[0]).__name__,
                    observed=type(row.cache).__name__,
                    code=["assert type(row) is type(members[0]), type(row)"],
                )
            row.check_offset("is not its number of tokens")
            for count in after:
                row.step(count)
                row.check_offset(f"after an append of {count}")

    few = st.lists(st.integers(1, 4), max_size=3)
    ctx.for_all(st.tuples(lengths_of(ctx.profile), few, COUNTS), test, fraction=0.7)


@check("BATCH-3", needs=BASICS, skip=lacks())
def empty_members_are_members(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int], int]) -> None:
        lengths, other_lengths, operation = drawn
        if constructed(ctx.profile):
            batch = Batch.constructed(ctx.profile, 0, batch_dims(ctx.profile))
            padding = ctx.profile.claims.left_padding or ()
        else:
            batch, padding = make(ctx, lengths), ()
        has = set(dir(batch.cache))
        if operation == 1 and "filter" in has and not padding:
            batch.filter(list(reversed(range(len(batch.rows)))), array=False)
        if operation == 2 and "extract" in has:
            row = batch.extract(0)
            row.check_offset("of an empty batch") if not batch.rows[0] and not padding else None
        if operation == 3 and "extend" in has and not padding:
            batch.extend(beside(ctx, batch, other_lengths))
        if any(padding):
            batch.step(max(padding) + 2, padded=padding)
        else:
            batch.step(2)
        batch.step(1)
        batch.check_offset("after two appends")

    ctx.for_all(
        st.tuples(
            lengths_of(ctx.profile, empty=True) | st.just([0, 0]),
            lengths_of(ctx.profile, empty=True) | st.just([0]),
            st.integers(0, 3),
        ),
        test,
    )


@check("BATCH-4", needs=BASICS, skip=lacks("filter", "extend"))
def filter_and_extend_keep_rows(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int], list[int], bool, bool]) -> None:
        lengths, others, order, array, extends_first = drawn
        batch = make(ctx, lengths)
        batch.step(1)
        for extending in (extends_first, not extends_first):
            if extending:
                batch.extend(beside(ctx, batch, others))
                batch.check_offset("after extend")
            else:
                keep = [index % len(batch.rows) for index in order]
                keep = list(dict.fromkeys(keep))
                batch.filter(keep, array=array)
                batch.check_offset("after filter")
            batch.step(1)
            batch.step(1)

    some = lengths_of(ctx.profile)
    order = st.lists(st.integers(0, 7), min_size=1, max_size=4)
    ctx.for_all(st.tuples(some, some, order, st.booleans(), st.booleans()), test)


def feed_ragged(
    batch: Batch, real: list[int], chunk: int, between: Callable[[Batch], None] | None = None
) -> None:
    """Feed prompts of different lengths as consumers do: announced, right-padded, in chunks."""
    most = max(real)
    padding = [most - length for length in real]
    line = f"{batch.name}.prepare(lengths={real}, right_padding={padding})"
    batch.run.call(line, lambda: batch.cache.prepare(lengths=real, right_padding=padding))
    fed = 0
    while fed < most:
        count = min(chunk, most - fed)
        left = [max(0, min(count, length - fed)) for length in real]
        batch.step(count, real=left)
        fed += count
    if between is not None:
        between(batch)
    batch.run.call(f"{batch.name}.finalize()", batch.cache.finalize)


@check("BATCH-5", needs=BASICS, skip=lacks("prepare", "finalize", "filter", "extract"))
def pending_padding_takes_part(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int], int, int]) -> None:
        lengths, prompts, chunk, operation = drawn
        batch = make(ctx, lengths)
        if operation == 0:  # nothing is pending
            batch.run.call("cache.finalize()", batch.cache.finalize)
            batch.step(1)
            return
        real = [prompts[index % len(prompts)] for index in range(len(batch.rows))]

        def between(batch: Batch) -> None:
            if operation == 2:
                batch.filter(list(reversed(range(len(batch.rows)))), array=False)
            if operation == 3:
                for index in range(len(batch.rows)):
                    row = batch.extract(index)
                    row.check_offset("extracted while padding was pending")
                    row.step(1)

        feed_ragged(batch, real, chunk, between)
        batch.check_offset("after finalize")
        batch.step(1)
        batch.step(1)

    prompts = st.lists(st.integers(1, 6), min_size=1, max_size=4)
    some = lengths_of(ctx.profile)
    ctx.for_all(st.tuples(some, prompts, st.integers(1, 4), st.integers(0, 3)), test)


@check("BATCH-6", needs=BASICS, skip=lacks("prepare", "finalize"))
def padding_evicts_nothing(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int], int, list[int]]) -> None:
        lengths, prompts, chunk, after = drawn
        batch = make(ctx, lengths)
        real = [prompts[index % len(prompts)] for index in range(len(batch.rows))]
        feed_ragged(batch, real, chunk)
        batch.check_offset("after finalize")
        for _ in after:
            batch.step(1)
        batch.check_offset("after more appends")

    prompts = st.lists(st.integers(1, 20), min_size=2, max_size=4)
    some = lengths_of(ctx.profile)
    ctx.for_all(st.tuples(some, prompts, st.integers(2, 8), COUNTS), test)


@check("BATCH-7", needs=("UPD-1",))
def merge_keeps_the_kind(ctx: Context) -> None:
    if constructed(ctx.profile) or "merge" not in ctx.profile.capabilities.members:
        raise NotApplicable("has no merge, or is a batch itself")
    run = ctx.run(masks=False)
    ctx.tried += 1
    cache = ctx.profile.subject.factory()
    merged = run.call("batch = type(cache).merge([cache])", lambda: type(cache).merge([cache]))
    visibility = ctx.profile.claims.visibility
    if ctx.profile.capabilities.quantized and not hasattr(merged, "bits"):
        run.fail(
            "merge turns a quantised cache into one that returns plain arrays",
            expected="bits, or no merge",
            observed=type(merged).__name__,
            code=["assert hasattr(batch, 'bits'), type(batch)"],
        )
    if isinstance(visibility, (SlidingWindow, Sinks)):
        batch = Batch.merged(ctx.profile, [visibility.window + 2], batch_dims(ctx.profile))
        for _ in range(visibility.window + 2):
            batch.step(1)


@check("BATCH-8", needs=BASICS, skip=lacks("extract"))
def members_are_left_alone(ctx: Context) -> None:
    def test(drawn: tuple[list[int], list[int]]) -> None:
        lengths, counts = drawn
        batch = make(ctx, lengths)
        run = batch.run
        held = Held(run, "the state of a member of a merge, or of an extracted row,")
        has_state = "state" in ctx.profile.capabilities.members
        for index, member in enumerate(batch.members):
            if has_state and lengths[index]:
                held.keep(f"members[{index}].state", member.state)
        row = batch.extract(0)
        if has_state:
            held.keep("row.state", row.cache.state)
        live = [plain(member.state) if has_state else None for member in batch.members]
        for _ in counts:
            batch.step(1)
        for index, member in enumerate(batch.members):
            own = len(batch.rows[index]) - len(counts)
            if "offset" in ctx.profile.capabilities.members and plain(member.offset) != own:
                run.fail(
                    f"merging moves the offset of member {index}",
                    expected=str(own),
                    observed=str(plain(member.offset)),
                    code=[f"assert members[{index}].offset == {own}, members[{index}].offset"],
                )
            if has_state and plain(member.state) != live[index]:
                run.fail(
                    f"member {index} of a merge changes while the batch goes on",
                    expected="its state as it was",
                    observed="another state",
                    code=["raise AssertionError('a member changed')"],
                )
        held.check()
        row.step(1)
        batch.step(1)

    ctx.for_all(st.tuples(lengths_of(ctx.profile), COUNTS), test, fraction=0.5)


@check("BATCH-9", needs=BASICS, skip=lacks("extend"))
def dtype_is_kept(ctx: Context) -> None:
    if "bfloat16" not in ctx.profile.claims.dtypes or constructed(ctx.profile):
        raise NotApplicable("does not take bfloat16, or is made as a batch")
    dims = batch_dims(ctx.profile, "bfloat16")

    def test(case: tuple[list[int], list[int]]) -> None:
        lengths, others = case
        batch = Batch.merged(ctx.profile, lengths, dims)
        other = Batch.merged(
            ctx.profile, others, dims, name="other", run=batch.run, numbers=batch.numbers
        )
        batch.extend(other)
        given = batch.tokens([[first] for first in batch.next])
        line = "keys, values = cache.update_and_fetch(*stack(["
        line += ", ".join(f"[{first}]" for first in batch.next) + "]))"
        got = batch.run.call(line, lambda: batch.cache.update_and_fetch(*given))
        rows = batch.run.unpack(got)[0]
        if rows.dtype != mx.bfloat16:
            batch.run.fail(
                "a batch of bfloat16 rows comes back in another dtype",
                expected="bfloat16",
                observed=str(rows.dtype),
                code=["assert keys.dtype == mx.bfloat16, keys.dtype"],
            )

    ctx.for_each([([2, 3], [0]), ([0], [2]), ([3, 0], [0, 0]), ([2], [4])], test)


@check("BATCH-10", needs=BASICS, skip=lacks("filter", "extend"))
def zero_rows_are_legal(ctx: Context) -> None:
    ctx.tried += 1
    batch = make(ctx, [3, 2])
    batch.filter([], array=False)
    batch.extend(beside(ctx, batch, [2, 4]))
    batch.step(1)
    batch.check_offset("after all rows left and others joined")
