"""Runs of batches: rows of different lengths, each with a log of its own.

Row r's tokens have numbers from 100 r on (numbers never repeat), made as a batch of one, so that
a token tells its row wherever it is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from conformance.helpers import make_tokens
from conformance.program import ranges
from conformance.subject import Profile
from conformance.tags import KEYS, Dims, identify, to_numpy
from conformance.trace import Ask, BoolArray, Run, default_dims, densify
from kvproto.visibility import Visibility

APART = 100
STACK = [
    "def stack(rows):",
    "    return [mx.concatenate(parts) for parts in zip(*(tokens(ids) for ids in rows))]",
    "",
]


class Numbers:
    """Gives out token numbers, each once; rows are a hundred apart."""

    def __init__(self) -> None:
        self._rows = 0

    def new_row(self) -> int:
        self._rows += 1
        return (self._rows - 1) * APART


class Batch:
    """A batch under test and what each of its rows holds."""

    def __init__(self, run: Run, numbers: Numbers) -> None:
        self.run = run
        self.numbers = numbers
        self.rows: list[list[int]] = []
        self.next: list[int] = []

    @classmethod
    def merged(
        cls,
        profile: Profile,
        lengths: Sequence[int],
        dims: Dims,
        *,
        name: str = "cache",
        run: Run | None = None,
        numbers: Numbers | None = None,
    ) -> Batch:
        """A batch merged of single caches that hold this many tokens.

        With ``run`` given, the batch is made beside another one, in the same program.
        """
        batch = cls(run or Run(profile, dims, masks=False), numbers or Numbers())
        owner = batch.run
        if run is None:
            owner.lines += STACK
        call = profile.subject.call or "..."
        owner.lines.append(f"members = [{', '.join([call] * len(lengths))}]")
        members = [profile.subject.factory() for _ in lengths]
        for index, (member, length) in enumerate(zip(members, lengths, strict=True)):
            first = batch.numbers.new_row()
            ids = list(range(first, first + length))
            if length:
                line = (
                    f"members[{index}].update_and_fetch(*tokens(range({first}, {first + length})))"
                )
                owner.call(line, lambda m=member, i=ids: m.update_and_fetch(*batch.tokens([i])))  # type: ignore[misc]
            batch.rows.append(ids)
            batch.next.append(first + length)
        batch.members = members
        line = f"{name} = type(members[0]).merge(members)"
        made = owner.call(line, lambda: type(members[0]).merge(members))
        batch.cache = made
        batch.name = name
        return batch

    @classmethod
    def constructed(
        cls,
        profile: Profile,
        count: int,
        dims: Dims,
        *,
        name: str = "cache",
        run: Run | None = None,
        numbers: Numbers | None = None,
    ) -> Batch:
        """A batch made by its constructor; its first chunk of ``count`` columns is left-padded."""
        padding = profile.claims.left_padding
        assert padding is not None
        batch = cls(run or Run(profile, dims, masks=False), numbers or Numbers())
        owner = batch.run
        if run is None:
            owner.lines += STACK
        else:
            owner.lines.append(f"{name} = {profile.subject.call or '...'}")
        batch.cache = owner.cache if run is None else profile.subject.factory()
        batch.name = name
        batch.members = []
        for _ in padding:
            batch.rows.append([])
            batch.next.append(batch.numbers.new_row())
        if count:
            batch.step(count, padded=padding)
        return batch

    cache: Any
    name: str
    members: list[Any]

    def tokens(self, rows: Sequence[Sequence[int]]) -> tuple[mx.array, mx.array]:
        """Keys and values of one list of numbers a row."""
        dims = self.run.dims
        made = [
            make_tokens(ids, 1, dims.heads, dims.key_dim, dims.value_dim, dims.mx_dtype)
            for ids in rows
        ]
        return mx.concatenate([k for k, _ in made]), mx.concatenate([v for _, v in made])

    def step(
        self,
        count: int,
        *,
        padded: Sequence[int] = (),
        real: Sequence[int] | None = None,
        window: int | None = None,
        check: bool = True,
    ) -> None:
        """Append ``count`` columns to every row, and check what every real query sees.

        Args:
            padded: leading columns of each row that are padding.
            real: how many of the columns are tokens, where the rest is right padding.
        """
        run, name = self.run, self.name
        given = [list(range(first, first + count)) for first in self.next]
        ask = Ask(count, window)
        mask: Any = None
        if run.has_mask:
            text = f"{name}.make_mask({count}, return_array=False, window_size={window})"
            mask = run.call(
                f"mask = {text}",
                lambda: self.cache.make_mask(count, return_array=False, window_size=window),
            )
        keys, values = self.tokens(given)
        shown = ", ".join(f"range({ids[0]}, {ids[-1] + 1})" for ids in given)
        result = run.call(
            f"keys, values = {name}.update_and_fetch(*stack([{shown}]))",
            lambda: self.cache.update_and_fetch(keys, values),
        )
        got, _ = run.unpack(result)
        before = [len(row) for row in self.rows]
        for index, ids in enumerate(given):
            left = padded[index] if padded else 0
            right = real[index] if real is not None else count
            self.rows[index] += ids[left:right]
            self.next[index] += count
        if check:
            self._compare(ask, mask, got, given, before, padded, real)

    def _compare(
        self,
        ask: Ask,
        mask: Any,
        keys: mx.array,
        given: list[list[int]],
        before: list[int],
        padded: Sequence[int],
        real: Sequence[int] | None,
    ) -> None:
        rows = to_numpy(keys)
        dense = self._dense(mask, rows.shape[2], ask.count, len(given))
        visibility = self._visibility(ask.window_size)
        for index in range(len(given)):
            found = identify(rows[index : index + 1], KEYS, self.run.dims.dtype)[0, 0]
            left = padded[index] if padded else 0
            right = real[index] if real is not None else ask.count
            for query in range(left, right):
                position = before[index] + query - left
                expected = [
                    number
                    for key, number in enumerate(self.rows[index])
                    if visibility.sees(position, key)
                ]
                seen = sorted(int(number) for number in found[dense[index, query]])
                if seen != expected:
                    self.run.fail(
                        f"row {index} of the batch: query {query} of {ask.count} sees other "
                        "tokens than it would alone",
                        expected=f"tokens {ranges(expected)}",
                        observed=f"tokens {ranges(seen)}",
                        code=[
                            f"got = seen(mask, keys, {ask.count}, {query}, {index})",
                            f"assert got == {expected}, got",
                        ],
                    )

    def _visibility(self, window: int | None) -> Visibility:
        declared = self.run.profile.claims.visibility
        return declared if window is None else declared.narrowed(window) or declared

    def _dense(self, mask: Any, length: int, count: int, batch: int) -> BoolArray:
        try:
            return densify(mask, batch, count, length)
        except ValueError:
            self.run.fail(
                f"the mask does not fit {batch} rows of {length} keys",
                expected=f"({batch}, 1, {count}, {length})",
                observed=str(tuple(mask.shape)),
                code=[f"mx.broadcast_to(mask, ({batch}, 1, {count}, keys.shape[2]))"],
            )

    def check_offset(self, when: str) -> None:
        """Fail unless every row's offset is its number of tokens."""
        offset = self.run.read(f"{self.name}.offset", lambda: self.cache.offset)
        got = offset.tolist() if isinstance(offset, mx.array) else offset
        expected = [len(row) for row in self.rows]
        if got != expected:
            self.run.fail(
                f"offsets of the rows {when}",
                expected=str(expected),
                observed=str(got),
                code=[f"assert {self.name}.offset.tolist() == {expected}, {self.name}.offset"],
            )

    def filter(self, keep: Sequence[int], *, array: bool) -> None:
        shown = f"mx.array({list(keep)})" if array else str(list(keep))
        argument: Any = mx.array(list(keep), dtype=mx.int32) if array else list(keep)
        self.run.call(f"{self.name}.filter({shown})", lambda: self.cache.filter(argument))
        self.rows = [self.rows[index] for index in keep]
        self.next = [self.next[index] for index in keep]

    def extend(self, other: Batch) -> None:
        self.run.call(f"{self.name}.extend({other.name})", lambda: self.cache.extend(other.cache))
        self.rows += other.rows
        self.next += other.next

    def extract(self, index: int) -> Single:
        line = f"row = {self.name}.extract({index})"
        made = self.run.call(line, lambda: self.cache.extract(index))
        return Single(self, made, list(self.rows[index]), self.next[index])


class Single(Batch):
    """One extracted row, as a batch of one."""

    def __init__(self, batch: Batch, cache: Any, row: list[int], next_number: int) -> None:
        super().__init__(batch.run, batch.numbers)
        self.cache, self.name, self.members = cache, "row", []
        self.rows, self.next = [row], [next_number]

    def check_offset(self, when: str) -> None:
        offset = self.run.read("row.offset", lambda: self.cache.offset)
        got = offset.tolist() if isinstance(offset, mx.array) else offset
        if got not in (len(self.rows[0]), [len(self.rows[0])]):
            self.run.fail(
                f"offset of the extracted row {when}",
                expected=str(len(self.rows[0])),
                observed=str(got),
                code=[f"assert row.offset == {len(self.rows[0])}, row.offset"],
            )


def batch_dims(profile: Profile, dtype: str | None = None) -> Dims:
    """Sizes for runs of batches: the program's tokens() makes one row."""
    return replace(default_dims(profile, dtype=dtype), batch=1)
