"""Faults of the state contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from reference_impl import KVCache, OffsetCache, SlidingWindowKVCache
from tests.faults.bases import RowOffsets, Rows, StepKVCache
from tests.faults.gallery import fault


@fault("STATE-1")
class StateOfEmptyRaises(KVCache):
    """state reads the shape of buffers that an empty cache does not have."""

    @property
    def state(self) -> Any:
        if self._offset == self._buffers[0].shape[2]:
            return *self._buffers, self._offset
        return super().state


@fault("STATE-1", arguments="8")
class StateOfFullRaises(SlidingWindowKVCache):
    """state can only be read until a token is dropped."""

    @property
    def state(self) -> Any:
        if self._offset > self._window:
            raise NotImplementedError(f"{type(self).__name__}: the window has wrapped")
        return super().state


@fault("STATE-2", claims={"batch_sizes": [2]})
class OffsetNotInState(RowOffsets):
    """Its offset is an array that state leaves out, so that its graph grows with each step."""

    @property
    def state(self) -> Any:
        return KVCache.state.fget(self)


@fault("STATE-2")
class ValuesNotInState(KVCache):
    """state holds the keys only, so that the values stay unevaluated."""

    @property
    def state(self) -> Any:
        keys, _, offset = super().state
        return keys, offset


@fault("STATE-2")
class ScoreNotInState(KVCache):
    """It sums up a score for eviction that state leaves out."""

    _score: Any = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._score = self._score + mx.abs(keys).sum()
        return super().update_and_fetch(keys, values)


@fault("STATE-3")
class DtypeInState(KVCache):
    """state holds a dtype, which no file format has."""

    @property
    def state(self) -> Any:
        return *super().state, mx.float32


@fault("STATE-3")
class NumpyNumberInState(KVCache):
    """state holds its offset as a number of numpy."""

    @property
    def state(self) -> Any:
        keys, values, offset = super().state
        return keys, values, np.int64(offset)


@fault("STATE-3")
class ItselfInState(KVCache):
    """state holds the cache itself once it is filled."""

    @property
    def state(self) -> Any:
        keys, values, offset = super().state
        return keys, values, {"offset": offset, "owner": self if offset else None}


@fault("STATE-4")
class CountsItsReaders(KVCache):
    """Each reading of state gives another number."""

    _read = 0

    @property
    def state(self) -> Any:
        self._read += 1
        return *super().state, self._read


@fault("STATE-4", arguments="8")
class ReadingTurnsTrimmable(SlidingWindowKVCache):
    """After a reading of state it cannot be trimmed."""

    _handed_out = False

    @property
    def state(self) -> Any:
        self._handed_out = True
        return super().state

    def is_trimmable(self) -> bool:
        return super().is_trimmable() and not self._handed_out


@fault("STATE-5")
class FalsyByLength(KVCache):
    """It has a length, so it is falsy while empty."""

    def __len__(self) -> int:
        return self._offset


@fault("STATE-5")
class FalsyByBool(OffsetCache):
    """Its truth is whether it holds data."""

    def __bool__(self) -> bool:
        return not self.empty()


@fault("STATE-6")
class StateIsTheBuffers(StepKVCache):
    """state hands out the buffers, which later appends write to in place."""

    @property
    def state(self) -> Any:
        if self._buffers is None:
            return None, None, 0
        return *self._buffers, self._offset
