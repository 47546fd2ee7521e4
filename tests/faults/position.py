"""Faults of the position contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import KVCache, OffsetCache, SlidingWindowKVCache
from tests.faults.bases import RowOffsets, Rows
from tests.faults.gallery import fault


@fault("POS-1")
class StartsAtOne(KVCache):
    """Its offset counts from 1."""

    @property
    def offset(self) -> int:
        return self._offset + 1

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)


@fault("POS-1", arguments="5")
class ForgetsItsStart(OffsetCache):
    """It is constructed at offset 5 and starts at 0."""

    def __init__(self, offset: int = 0) -> None:
        super().__init__(0)


# None is no type that an offset may have.
@fault("POS-1", also=("POS-5",))
class HasNoOffsetWhileEmpty(KVCache):
    """Its offset is None until the first append."""

    @property
    def offset(self) -> int | None:
        return self._offset or None

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)


@fault("POS-2", arguments="8")
class CountsRetainedRows(SlidingWindowKVCache):
    """Its offset stops at the window."""

    @property
    def offset(self) -> int:
        return min(self._offset, self._window)

    @offset.setter
    def offset(self, offset: int) -> None:
        SlidingWindowKVCache.offset.fset(self, offset)


@fault("POS-2", arguments="8")
class WrapsItsOffset(SlidingWindowKVCache):
    """Its offset is the write index of a ring of 16 rows."""

    @property
    def offset(self) -> int:
        return self._offset % (2 * self._window)

    @offset.setter
    def offset(self, offset: int) -> None:
        SlidingWindowKVCache.offset.fset(self, offset)


# A capacity is more than the number of tokens logged.
@fault("POS-2", also=("POS-6",))
class ShowsItsCapacity(KVCache):
    """Its offset is the number of rows allocated."""

    @property
    def offset(self) -> int:
        return 0 if self._buffers is None else self._buffers[0].shape[2]

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)


@fault("POS-2")
class CountsOnePerAppend(KVCache):
    """Its offset is raised by 1 an append, whatever the number of tokens."""

    _shown = 0

    @property
    def offset(self) -> int:
        return self._shown

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)
        self._shown = min(self._shown, offset)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._shown += 1
        return super().update_and_fetch(keys, values)


# It is the reading of state that moves offset.
@fault("POS-3", also=("STATE-4",))
class MovesWhenEvaluated(KVCache):
    """Its offset moves when state is read for evaluation, not when tokens are appended."""

    _shown = 0

    @property
    def offset(self) -> int:
        return self._shown

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)
        self._shown = offset

    @property
    def state(self) -> Any:
        self._shown = self._offset
        return super().state


@fault("POS-4", claims={"batch_sizes": [2]})
class RaisesOffsetInPlace(RowOffsets):
    """It raises its offset with `+=`, which changes the array that others hold."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = KVCache.update_and_fetch(self, keys, values)
        self._rows += keys.shape[2]
        return result


@fault("POS-4", claims={"batch_sizes": [2]})
class LowersOffsetInPlace(RowOffsets):
    """trim changes the array that an earlier reader of offset holds."""

    def trim(self, n: int) -> int:
        removed = min(n, self._offset)
        KVCache.offset.fset(self, self._offset - removed)
        self._rows -= removed
        return removed


@fault("POS-5")
class IntBecomesArray(KVCache):
    """Its offset is an int while empty and an array from the first append on."""

    @property
    def offset(self) -> Any:
        return mx.array(self._offset) if self._offset else 0

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)


@fault("POS-5", claims={"batch_sizes": [2]})
class ArrayBecomesIntByTrim(RowOffsets):
    """Its offset is one number for each row until a trim makes it an int."""

    def trim(self, n: int) -> int:
        removed = min(n, self._offset)
        KVCache.offset.fset(self, self._offset - removed)
        self._rows = self._offset
        return removed


@fault("POS-5", claims={"batch_sizes": [2]})
class ChangesItsDtype(RowOffsets):
    """Its offset is int32 at first and int64 from the first append on."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = super().update_and_fetch(keys, values)
        self._rows = self._rows.astype(mx.int64)
        return result


@fault("POS-6")
class TrimsBelowZero(KVCache):
    """trim lowers the offset by what was asked, also where fewer tokens are held."""

    _below = 0

    @property
    def offset(self) -> int:
        return self._offset - self._below

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)

    def trim(self, n: int) -> int:
        removed = super().trim(n)
        self._below += n - removed
        return removed


@fault("POS-6")
class TrimLeavesOffset(KVCache):
    """trim removes the rows and leaves the offset where it was."""

    _most = 0

    @property
    def offset(self) -> int:
        return max(self._most, self._offset)

    @offset.setter
    def offset(self, offset: int) -> None:
        self._most = self.offset
        KVCache.offset.fset(self, offset)


@fault("POS-7", claims={"rewinds": True})
class ForgetsTheRewind(KVCache):
    """A lowered offset is shown, but the next append goes on behind the old rows."""

    _shown: int | None = None

    @property
    def offset(self) -> int:
        return self._offset if self._shown is None else self._shown

    @offset.setter
    def offset(self, offset: int) -> None:
        self._shown = offset

    def trim(self, n: int) -> int:
        removed = min(n, self._offset)
        KVCache.offset.fset(self, self._offset - removed)
        return removed

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._shown = None
        return super().update_and_fetch(keys, values)


@fault("POS-7", claims={"rewinds": True})
class RefusesTheRewind(KVCache):
    """It declares that its owner may lower offset, and raises when he does."""

    @property
    def offset(self) -> int:
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        raise ValueError(f"{type(self).__name__}: offset is read-only")

    def trim(self, n: int) -> int:
        removed = min(n, self._offset)
        KVCache.offset.fset(self, self._offset - removed)
        return removed
