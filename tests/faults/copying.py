"""Faults of the copying contract."""

from __future__ import annotations

import copy
import threading
from typing import Any

import mlx.core as mx
from typing_extensions import Self

from reference_impl import ChunkedKVCache, KVCache, SlidingWindowKVCache
from tests.faults.bases import Rows, StepKVCache
from tests.faults.gallery import fault

# -- COPY-1: a deep copy is a fork -------------------------------------------------------------


@fault("COPY-1")
class CopyIsItself(KVCache):
    """deepcopy returns the cache itself."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self


@fault("COPY-1")
class CopySharesItsBuffers(StepKVCache):
    """deepcopy is a shallow copy, whose buffers both write to in place."""

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.copy(self)


@fault("COPY-1")
class HoldsALock(KVCache):
    """It holds a lock, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()


@fault("COPY-1")
class EmptyCannotBeCopied(KVCache):
    """deepcopy reads the buffers, which an empty cache does not have."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_state((*self.keys_and_values(), self._offset))


@fault("COPY-1", arguments="8")
class CopyStandsAtItsRows(SlidingWindowKVCache):
    """deepcopy appends the rows to a new cache, whose offset is then their number."""

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)(self._window)
        if self._buffers is not None:
            made.update_and_fetch(*self.keys_and_values())
        return made


@fault("COPY-1", arguments="8")
class CopyStartsAtZero(ChunkedKVCache):
    """deepcopy forgets start_position, and with it the offset."""

    def __deepcopy__(self, memo: Any) -> Any:
        keys, values, offset, start, chunk_size = self.state
        return type(self).from_state((keys, values, offset - start, 0, chunk_size))


@fault("COPY-1")
class SlotIsNotCopied(KVCache):
    """deepcopy copies __dict__, and an append needs a slot."""

    __slots__ = ("_width",)

    def __init__(self) -> None:
        super().__init__()
        self._width = 1

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        assert self._width
        return super().update_and_fetch(keys, values)

    @classmethod
    def from_state(cls, state: Any) -> Self:
        made = cls()
        made.state = state
        return made

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made


# -- COPY-3: pickle ----------------------------------------------------------------------------


@fault("COPY-3")
class HoldsALambda(KVCache):
    """It holds a local function, which deepcopy takes and pickle does not."""

    def __init__(self) -> None:
        super().__init__()
        self._listener = lambda: None


@fault("COPY-3")
class PickleIsRefused(KVCache):
    """deepcopy is its own, and pickle raises."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_state(self.state)

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled")


@fault("COPY-3")
class PicklesEmpty(KVCache):
    """A pickle of it is a new cache."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_state(self.state)

    def __reduce__(self) -> Any:
        return type(self), ()
