"""Faults of the batch contract.

A fault of ``merge``, or of what a merged batch shows, is on the class of the members; a fault of
one that rows leave or join is on a batch that is constructed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx

from reference_impl import (
    BatchKVCache,
    BatchSlidingWindowKVCache,
    KVCache,
    QuantizedKVCache,
    SlidingWindowKVCache,
)
from reference_impl.masks import attention_mask
from reference_impl.padding import RowPadding
from tests.faults.bases import Rows
from tests.faults.gallery import fault


class Batch(BatchKVCache):
    """A sound batch that gives its rows back in the class of its members."""

    member: type[KVCache] = KVCache

    def extract(self, index: int, /) -> KVCache:
        return self.member.from_state(super().extract(index).state)


class Member(KVCache):
    """A sound cache whose batches give it back."""

    batch: ClassVar[type[Batch]] = Batch

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        merged = cls.batch.merge(caches)
        merged.member = cls
        return merged


class WindowBatch(BatchSlidingWindowKVCache):
    """A sound batch that gives its rows back in the class of its members."""

    member: type[SlidingWindowKVCache] = SlidingWindowKVCache

    def extract(self, index: int, /) -> SlidingWindowKVCache:
        return self.member.from_state(super().extract(index).state)


class WindowMember(SlidingWindowKVCache):
    """A sound windowed cache whose batches give it back."""

    batch: ClassVar[type[WindowBatch]] = WindowBatch

    @classmethod
    def merge(cls, caches: Sequence[SlidingWindowKVCache], /) -> WindowBatch:
        merged = cls.batch.merge(caches)
        merged.member = cls
        return merged


# -- BATCH-1: as alone -------------------------------------------------------------------------
# What a merged batch shows is wrong from the first step on, and the other clauses say that rows are
# as alone after something else was done to such a batch.


@fault("BATCH-1", also=("BATCH-2", "BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6", "BATCH-8"))
class PaddingIsVisible(Member):
    """The mask of a merged batch does not hide padding."""

    class batch(Batch):
        """As above."""

        def make_mask(
            self, N: int, /, *, return_array: bool = False, window_size: int | None = None
        ) -> Any:
            return attention_mask(N, self._columns, window=window_size, return_array=return_array)


@fault("BATCH-1", also=("BATCH-2", "BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6", "BATCH-8"))
class MergeForgetsTokens(Member):
    """merge loses the first token of every member that is longer than the first one."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        merged = super().merge(caches)
        first = caches[0].offset
        merged._padding = RowPadding(
            [
                left + (cache.offset > first)
                for left, cache in zip(merged._padding.left, caches, strict=True)
            ]
        )
        return merged


@fault("BATCH-1", also=("BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6"))
class OffsetOfTheLongestRow(Member):
    """The offset of every row of a merged batch is that of the longest."""

    class batch(Batch):
        """As above."""

        @property
        def offset(self) -> mx.array:
            return mx.full((self._padding.rows,), self._columns, mx.int32)


@fault("BATCH-1", also=("BATCH-2", "BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6", "BATCH-8"))
class MergeAlignsAtTheLeft(Member):
    """merge puts padding behind the tokens of the shorter members, and says that it is before."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        merged = super().merge(caches)
        if merged._buffers is not None:
            columns = mx.arange(merged._columns)
            source = (columns + mx.array(merged._padding.left)[:, None]) % merged._columns
            merged._buffers = tuple(
                mx.take_along_axis(rows, source[:, None, :, None], axis=2)
                for rows in merged.keys_and_values()
            )
        return merged


@fault(
    "BATCH-1",
    also=("BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6", "BATCH-8"),
    effort="default",
)
class MergesFirstRowForAll(Member):
    """Members of equal length are all given the tokens of the first one."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        if len({cache.offset for cache in caches}) == 1:
            return super().merge([caches[0]] * len(caches))
        return super().merge(caches)


# -- BATCH-2: merge and extract ----------------------------------------------------------------
# A wrong row is wrong also if padding is pending (BATCH-5), and beside a batch that goes on
# (BATCH-8).


@fault("BATCH-2")
class InheritsItsMerge(KVCache):
    """Its rows are extracted as KVCache, from which merge is inherited."""


@fault("BATCH-2", also=("BATCH-3", "BATCH-5", "BATCH-8"), arguments="[2, 0]")
class ExtractsItsPadding(BatchKVCache):
    """An extracted row has the padding at its left as tokens."""

    def extract(self, index: int, /) -> KVCache:
        keys, values = (rows[index : index + 1] for rows in self.keys_and_values())
        return KVCache.from_state((keys, values, self._columns))


@fault("BATCH-2", also=("BATCH-5", "BATCH-8"), arguments="[2, 0]")
class ExtractLosesTheNewest(BatchKVCache):
    """An extracted row has all tokens but the newest."""

    def extract(self, index: int, /) -> KVCache:
        row = super().extract(index)
        row.trim(1)
        return row


@fault("BATCH-2", also=("BATCH-5", "BATCH-8"), arguments="[2, 0]")
class ExtractsTheFirstRow(BatchKVCache):
    """Every extracted row has the newest tokens of row 0, as many as it has tokens."""

    def extract(self, index: int, /) -> KVCache:
        row = super().extract(index)
        if self._buffers is None:
            return row
        keys, values = self.keys_and_values()
        start = self._columns - row.offset
        return KVCache.from_state((keys[:1, :, start:], values[:1, :, start:], row.offset))


@fault("BATCH-2", also=("BATCH-5", "BATCH-8"), arguments="8, [2, 0]")
class ExtractDoublesTheWindow(BatchSlidingWindowKVCache):
    """An extracted row has a window twice as long."""

    def extract(self, index: int, /) -> SlidingWindowKVCache:
        row = super().extract(index)
        row._window *= 2
        return row


@fault("BATCH-2", also=("BATCH-5", "BATCH-8"), arguments="8, sinks=2")
class ExtractLosesSinks(WindowMember):
    """An extracted row has no sinks."""

    class batch(WindowBatch):
        """As above."""

        def extract(self, index: int, /) -> SlidingWindowKVCache:
            row = super().extract(index)
            row._sinks = 0
            return row


@fault("BATCH-2", also=("BATCH-5",), arguments="8, [2, 0]")
class ExtractCountsRowsHeld(BatchSlidingWindowKVCache):
    """The offset of an extracted row is the number of rows that it holds."""

    def extract(self, index: int, /) -> SlidingWindowKVCache:
        row = super().extract(index)
        row._offset = min(row._offset, row._end - row._start)
        return row


# -- BATCH-3: empty members --------------------------------------------------------------------
# What an empty member breaks cannot keep a dtype either (BATCH-9).


@fault("BATCH-3", also=("BATCH-9",))
class RefusesEmptyMembers(Member):
    """merge raises for a member that is empty beside one that is not."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        if len({cache.empty() for cache in caches}) == 2:
            raise ValueError(f"{cls.__name__}: an empty cache has no shape")
        return super().merge(caches)


@fault("BATCH-3", also=("BATCH-7", "BATCH-9"))
class RefusesAllEmpty(Member):
    """merge raises if all members are empty."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        columns = max(cache.offset for cache in caches if not cache.empty())
        assert columns > 0
        return super().merge(caches)


@fault("BATCH-3", also=("BATCH-9",))
class DropsEmptyMembers(Member):
    """merge makes rows of the members that are not empty only."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        return super().merge([cache for cache in caches if not cache.empty()] or caches[:1])


@fault("BATCH-3", also=("BATCH-9",))
class ExtendsNothing(Member):
    """A batch without columns stays as it is when another one is to extend it."""

    class batch(Batch):
        """As above."""

        def extend(self, other: Any, /) -> None:
            if self._columns:
                super().extend(other)


# -- BATCH-4: filter and extend ----------------------------------------------------------------
# A filter that mixes rows up does so while padding is pending, too (BATCH-5).


@fault("BATCH-4", also=("BATCH-5",), arguments="[1, 0]")
class FilterKeepsTheOrder(BatchKVCache):
    """filter keeps the rows in the order of the batch."""

    def filter(self, keep: Any, /) -> None:
        super().filter(sorted(keep.tolist() if isinstance(keep, mx.array) else keep))


@fault("BATCH-4", arguments="[1, 0]")
class FiltersByListsOnly(BatchKVCache):
    """filter by an array raises."""

    def filter(self, keep: Any, /) -> None:
        super().filter([*map(int, iter(keep if isinstance(keep, list) else [keep]))])


@fault("BATCH-4", also=("BATCH-5",), arguments="[1, 0]")
class FilterForgetsItsPadding(BatchKVCache):
    """After filter the padding is that of the first rows."""

    def filter(self, keep: Any, /) -> None:
        padding, columns = self._padding, self._columns
        super().filter(keep)
        rows = range(self._padding.rows)
        self._padding = padding.selected([*rows], dropped=columns - self._columns)


@fault("BATCH-4", also=("BATCH-5",), arguments="[1, 0]")
class FilterDropsTooMuch(BatchKVCache):
    """filter drops the columns that are padding in one of the rows."""

    def filter(self, keep: Any, /) -> None:
        super().filter(keep)
        most = max(self._padding.left, default=0)
        if self._buffers is not None and most < self._columns:
            keys, values = self.keys_and_values()
            self._buffers = keys[:, :, most:], values[:, :, most:]
            self._columns -= most
            self._padding = RowPadding([0] * self._padding.rows)


@fault("BATCH-4", arguments="[1, 0]")
class ExtendForgetsToPad(BatchKVCache):
    """extend moves the rows of the batch with fewer columns, and leaves its padding as it was."""

    def extend(self, other: Any, /) -> None:
        left = self._padding.left + other._padding.left
        super().extend(other)
        self._padding.left = left


@fault("BATCH-4", arguments="[1, 0]")
class ExtendsInFront(BatchKVCache):
    """extend puts the rows of the other batch before its own."""

    def extend(self, other: Any, /) -> None:
        own = self._padding.rows
        super().extend(other)
        self.filter([*range(own, self._padding.rows), *range(own)])


@fault("BATCH-4", arguments="8, [1, 0]")
class ExtendMovesTheLonger(BatchSlidingWindowKVCache):
    """extend cuts what is held to the columns of the batch that holds fewer."""

    def extend(self, other: Any, /) -> None:
        super().extend(other)
        if self._buffers is not None and not any(self._gone):
            self._buffers = tuple(
                mx.where(mx.arange(rows.shape[2])[:, None] < rows.shape[2] - 4, 0, rows)
                for rows in self._buffers
            )


# -- BATCH-5: pending padding ------------------------------------------------------------------


@fault("BATCH-5", arguments="[1, 0]")
class PendingIsNotFiltered(BatchKVCache):
    """filter leaves the pending padding to the rows with the same numbers."""

    def filter(self, keep: Any, /) -> None:
        announced = self._padding.announced
        super().filter(keep)
        self._padding = RowPadding(self._padding.left, announced[: self._padding.rows])


@fault("BATCH-5", arguments="[1, 0]")
class PendingIsLostByFilter(BatchKVCache):
    """filter forgets what padding is pending."""

    def filter(self, keep: Any, /) -> None:
        super().filter(keep)
        self._padding = RowPadding(self._padding.left)


@fault("BATCH-5", arguments="[1, 0]")
class PendingIsExtracted(BatchKVCache):
    """A row that is extracted has its pending padding as tokens."""

    def extract(self, index: int, /) -> KVCache:
        padding = self._padding
        self._padding = RowPadding(padding.left)
        row = super().extract(index)
        self._padding = padding
        return row


@fault("BATCH-5", arguments="[1, 0]")
class FinalizeNeedsPadding(BatchKVCache):
    """finalize raises when nothing is pending."""

    def finalize(self) -> None:
        if not self._padding.pending:
            raise RuntimeError(f"{type(self).__name__}: finalize without prepare")
        super().finalize()


@fault("BATCH-5", also=("BATCH-6",), arguments="[1, 0]")
class RefusesChunksOfOne(BatchKVCache):
    """While padding is pending a chunk of one token raises."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if self._padding.pending and keys.shape[2] == 1:
            raise ValueError(f"{type(self).__name__}: prompts have several tokens")
        return super().update_and_fetch(keys, values)


# -- BATCH-6: padding at both sides ------------------------------------------------------------
# Every one of them ends pending padding wrongly, which BATCH-5 builds on.


@fault("BATCH-6", also=("BATCH-5",), arguments="[1, 0]")
class FinalizeForgetsARow(BatchKVCache):
    """finalize leaves the padding of the last row where it is."""

    def finalize(self) -> None:
        self._move_to_left([*self._padding.right(self._columns)[:-1], 0])


@fault("BATCH-6", also=("BATCH-5",), arguments="[1, 0]")
class FinalizeReplacesPadding(BatchKVCache):
    """After finalize the padding at the left is what was at the right."""

    def finalize(self) -> None:
        right = self._padding.right(self._columns)
        super().finalize()
        if any(right):
            self._padding.left = right


@fault("BATCH-6", also=("BATCH-5",), arguments="[1, 0]")
class FinalizeMovesNothing(BatchKVCache):
    """finalize counts the padding at the right to the left, and does not move it."""

    def finalize(self) -> None:
        self._padding.settle(self._padding.right(self._columns))


@fault("BATCH-6", also=("BATCH-5",), arguments="8, [1, 0]")
class PaddingEvicts(BatchSlidingWindowKVCache):
    """Padding at the right counts as tokens of the window."""

    def _first_needed(self) -> int:
        first = max(self._columns - (self._window - 1), self._first)
        return first if first > self._sinks else 0

    def _without_right(self, operation: str, row: int, right: int) -> Any:
        window, self._window = self._window, 1
        try:
            return super()._without_right(operation, row, right)
        finally:
            self._window = window


# -- BATCH-7: merge keeps the kind -------------------------------------------------------------


@fault("BATCH-7")
class MergesQuantizedAsPlain(QuantizedKVCache):
    """merge gives a batch of dequantised rows."""

    @classmethod
    def merge(cls, caches: Sequence[QuantizedKVCache], /) -> BatchKVCache:
        members = []
        for cache in caches:
            members.append(KVCache())
            if not cache.empty():
                options = {"group_size": cache.group_size, "bits": cache.bits}
                rows = (mx.dequantize(*rows, **options) for rows in cache.keys_and_values())
                members[-1].update_and_fetch(*rows)
        return BatchKVCache.merge(members)


@fault(
    "BATCH-7",
    also=("BATCH-1", "BATCH-2", "BATCH-3", "BATCH-4", "BATCH-5", "BATCH-6", "BATCH-8"),
    arguments="8",
)
class MergesWindowsAsFull(SlidingWindowKVCache):
    """merge gives a batch that shows every token, one that the window has left too."""

    @classmethod
    def merge(cls, caches: Sequence[SlidingWindowKVCache], /) -> BatchKVCache:
        members = []
        for cache in caches:
            members.append(KVCache())
            if not cache.empty():
                members[-1].update_and_fetch(*cache.keys_and_values())
        return BatchKVCache.merge(members)


# -- BATCH-8: what is left alone ---------------------------------------------------------------


@fault("BATCH-8", also=("BATCH-2", "BATCH-3", "BATCH-5"), arguments="[1, 0]")
class ExtractRemovesTheRow(BatchKVCache):
    """A row that is extracted has left the batch."""

    def extract(self, index: int, /) -> KVCache:
        row = super().extract(index)
        self.filter([other for other in range(self._padding.rows) if other != index])
        return row


# -- BATCH-9: dtypes ---------------------------------------------------------------------------


def cast(batch: Batch, dtype: mx.Dtype) -> None:
    if batch._buffers is not None:
        batch._buffers = tuple(rows.astype(dtype) for rows in batch._buffers)


@fault("BATCH-9")
class MergesInFloat32(Member):
    """A merged batch is float32, and casts what is appended."""

    class batch(Batch):
        """As above."""

        def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
            return super().update_and_fetch(keys.astype(mx.float32), values.astype(mx.float32))

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        merged = super().merge(caches)
        cast(merged, mx.float32)
        return merged


@fault("BATCH-9")
class EmptyMembersAreFloat32(Member):
    """A merge with an empty member promotes everything to float32."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> Batch:
        merged = super().merge(caches)
        if any(cache.empty() for cache in caches):
            cast(merged, mx.float32)
        return merged


@fault("BATCH-9")
class ExtendPromotes(Member):
    """extend by a batch without columns promotes everything to float32."""

    class batch(Batch):
        """As above."""

        def extend(self, other: Any, /) -> None:
            super().extend(other)
            if other.empty():
                cast(self, mx.float32)


# -- BATCH-10: no rows -------------------------------------------------------------------------


@fault("BATCH-10", arguments="[1, 0]")
class RefusesNoRows(BatchKVCache):
    """filter to no rows raises."""

    def filter(self, keep: Any, /) -> None:
        if len(keep) == 0:
            raise ValueError(f"{type(self).__name__}: no rows")
        super().filter(keep)


@fault("BATCH-10", arguments="[1, 0]")
class NoRowsAreAllRows(BatchKVCache):
    """filter to no rows keeps all of them."""

    def filter(self, keep: Any, /) -> None:
        if len(keep):
            super().filter(keep)


@fault("BATCH-10", arguments="[1, 0]")
class NoRowsCannotBeExtended(BatchKVCache):
    """A batch of no rows cannot be extended."""

    def extend(self, other: Any, /) -> None:
        self._padding.left[0]
        super().extend(other)
