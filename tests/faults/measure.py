"""Faults of the measure contract."""

from __future__ import annotations

from typing import Any

from reference_impl import BatchKVCache, KVCache, SlidingWindowKVCache
from tests.faults.gallery import fault

# -- MEAS-1: size() ----------------------------------------------------------------------------


@fault("MEAS-1")
class SizeIsZero(KVCache):
    """size() is 0, as in a base class that knows no better."""

    def size(self) -> int:
        return 0


# A restored cache has a buffer of another size.
@fault("MEAS-1", also=("REST-1",))
class SizeIsTheBuffer(KVCache):
    """size() counts spare rows."""

    def size(self) -> int:
        return 0 if self._buffers is None else self._buffers[0].shape[2]


@fault("MEAS-1")
class SizeIsTheBatch(KVCache):
    """size() counts the tokens of all rows, a row once too often."""

    def size(self) -> int:
        return 0 if self._buffers is None else self._offset * (self._buffers[0].shape[0] + 1)


@fault("MEAS-1")
class SizeIsFloat(KVCache):
    """size() is a float."""

    def size(self) -> Any:
        return float(self._offset)


@fault("MEAS-1", arguments="8")
class SizeIsItsOffset(SlidingWindowKVCache):
    """size() of a window is its offset, also when most of that was dropped."""

    def size(self) -> int:
        return self._offset


@fault("MEAS-1", arguments="8")
class SizeIsWhatItHolds(SlidingWindowKVCache):
    """size() is W - 1 + S after an append of S tokens."""

    def size(self) -> int:
        return self._end - self._start


@fault("MEAS-1", arguments="8")
class SizeIsTheWindow(SlidingWindowKVCache):
    """size() is W although fewer tokens were appended."""

    def size(self) -> int:
        return self._window


@fault("MEAS-1", arguments="[2, 0, 5]")
class SizeIsTheShortestRow(BatchKVCache):
    """size() of a batch is the tokens of its shortest row."""

    def size(self) -> int:
        return max(self._columns - max(self._padding.left), 0)


# -- MEAS-2: empty() ---------------------------------------------------------------------------


@fault("MEAS-2")
class NeverEmpty(KVCache):
    """empty() is False when new."""

    def empty(self) -> bool:
        return False


@fault("MEAS-2")
class AlwaysEmpty(KVCache):
    """empty() is True when filled."""

    def empty(self) -> bool:
        return True


@fault("MEAS-2")
class EmptyMeansFilled(KVCache):
    """empty() says the opposite."""

    def empty(self) -> bool:
        return self._offset > 0


@fault("MEAS-2", arguments="8")
class EmptyWhenItWraps(SlidingWindowKVCache):
    """empty() is True whenever the next token goes to the start of the ring."""

    def empty(self) -> bool:
        return self._offset % self._window == 0


@fault("MEAS-2", arguments="[2, 0, 5]")
class EmptyWhileOneRowIs(BatchKVCache):
    """empty() is True while a row of the batch has no token."""

    def empty(self) -> bool:
        return self._columns <= max(self._padding.left)


# -- MEAS-3: nbytes ----------------------------------------------------------------------------


@fault("MEAS-3")
class NbytesOfEmptyRaises(KVCache):
    """nbytes reads the buffers, which an empty cache does not have."""

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in self._buffers)


@fault("MEAS-3")
class NbytesIsZero(KVCache):
    """nbytes is 0."""

    @property
    def nbytes(self) -> int:
        return 0


@fault("MEAS-3")
class CountsKeysOnly(KVCache):
    """nbytes counts the keys twice, and the values, which are wider, not at all."""

    @property
    def nbytes(self) -> int:
        held = self._buffers
        return 0 if held is None else 2 * held[0][:, :, : self._offset].nbytes


@fault("MEAS-3")
class CountsElements(KVCache):
    """nbytes is the number of elements."""

    @property
    def nbytes(self) -> int:
        return sum(rows.size for rows in self._buffers or ()) // 4


@fault("MEAS-3")
class CountsTwice(KVCache):
    """nbytes is twice what it holds."""

    @property
    def nbytes(self) -> int:
        return 2 * KVCache.nbytes.fget(self)


@fault("MEAS-3")
class NbytesIsFloat(KVCache):
    """nbytes is a float."""

    @property
    def nbytes(self) -> Any:
        return float(KVCache.nbytes.fget(self))


@fault("MEAS-3")
class NbytesIsAMethod(KVCache):
    """nbytes has to be called."""

    def nbytes(self) -> int:
        return KVCache.nbytes.fget(self)
