"""Faults of the recurrent contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import RecurrentCache
from tests.faults.gallery import fault

# -- REC-1: slots ------------------------------------------------------------------------------


@fault("REC-1", arguments="2")
class SlotsStartAsZeros(RecurrentCache):
    """An unset slot reads as an array of zeros."""

    def __getitem__(self, index: int, /) -> mx.array | None:
        slot = super().__getitem__(index)
        return mx.zeros((1, 1)) if slot is None else slot


@fault("REC-1", arguments="2")
class AssigningAddsASlot(RecurrentCache):
    """The first array that is assigned to slot 0 brings a further slot."""

    def __setitem__(self, index: int, array: mx.array | None, /) -> None:
        if index == 0 and self._slots[0] is None:
            self._slots.append(None)
            self._unset.append(frozenset())
        super().__setitem__(index, array)


@fault("REC-1", arguments="2")
class FirstSlotOnly(RecurrentCache):
    """An array that is assigned to another slot than the first is lost."""

    def __setitem__(self, index: int, array: mx.array | None, /) -> None:
        if index == 0:
            super().__setitem__(index, array)


# -- REC-2: advance ----------------------------------------------------------------------------


@fault("REC-2", arguments="2")
class AdvanceForgetsLengths(RecurrentCache):
    """advance lowers left_padding only."""

    def advance(self, n: int, /) -> None:
        lengths = self._lengths
        super().advance(n)
        self._lengths = lengths


@fault("REC-2", arguments="2")
class AdvanceByOne(RecurrentCache):
    """advance lowers by 1, however many columns passed."""

    def advance(self, n: int, /) -> None:
        super().advance(1)


@fault("REC-2", arguments="2")
class AdvanceStopsAtTheShortest(RecurrentCache):
    """advance lowers no length once one of them is used up."""

    def advance(self, n: int, /) -> None:
        lengths = self._lengths
        super().advance(n)
        if lengths is not None and min(lengths) <= 0:
            self._lengths = lengths


@fault("REC-2", arguments="2")
class AdvancesInPlace(RecurrentCache):
    """advance lowers the array of left_padding that it handed out."""

    _array: mx.array | None = None

    @property
    def left_padding(self) -> mx.array | None:
        if self._left_padding is None:
            return None
        if self._array is None:
            self._array = mx.array(self._left_padding, mx.int32)
        return self._array

    @left_padding.setter
    def left_padding(self, left_padding: Any) -> None:
        self._array = None
        RecurrentCache.left_padding.fset(self, left_padding)

    def advance(self, n: int, /) -> None:
        super().advance(n)
        if self._array is not None:
            self._array -= n


@fault("REC-2", arguments="2")
class CountsInOneNumber(RecurrentCache):
    """lengths is one number for all rows, that of the longest."""

    @property
    def lengths(self) -> mx.array | None:
        return None if self._lengths is None else mx.array(max(self._lengths))

    @lengths.setter
    def lengths(self, lengths: Any) -> None:
        RecurrentCache.lengths.fset(self, lengths)


# -- REC-3: the mask ---------------------------------------------------------------------------


@fault("REC-3", arguments="2")
class MaskIgnoresLengths(RecurrentCache):
    """make_mask knows the padding at the left only."""

    def make_mask(self, N: int, /) -> mx.array | None:
        lengths, self._lengths = self._lengths, None
        try:
            return super().make_mask(N)
        finally:
            self._lengths = lengths


@fault("REC-3", arguments="2")
class MaskOfOneKind(RecurrentCache):
    """make_mask leaves out lengths where there is padding at the left."""

    def make_mask(self, N: int, /) -> mx.array | None:
        lengths = self._lengths
        if self._left_padding is not None:
            self._lengths = None
        try:
            return super().make_mask(N)
        finally:
            self._lengths = lengths


@fault("REC-3", arguments="2")
class MaskHidesOneMore(RecurrentCache):
    """make_mask hides the first token after the padding at the left."""

    def make_mask(self, N: int, /) -> mx.array | None:
        if self._left_padding is None:
            return super().make_mask(N)
        left, self._left_padding = self._left_padding, [n + (n > 0) for n in self._left_padding]
        try:
            return super().make_mask(N)
        finally:
            self._left_padding = left


@fault("REC-3", arguments="2")
class MaskShowsThePadding(RecurrentCache):
    """make_mask says True for padding and False for tokens."""

    def make_mask(self, N: int, /) -> mx.array | None:
        mask = super().make_mask(N)
        return None if mask is None else ~mask


@fault("REC-3", arguments="2")
class MaskOfFourAxes(RecurrentCache):
    """make_mask gives (B, 1, 1, N), as for attention."""

    def make_mask(self, N: int, /) -> mx.array | None:
        mask = super().make_mask(N)
        return None if mask is None else mask[:, None, None]


# -- REC-4: no rewinding -----------------------------------------------------------------------


@fault("REC-4", arguments="2")
class TrimsNoSlot(RecurrentCache):
    """It says that it is trimmable, and trim changes nothing."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        return n


@fault("REC-4", arguments="2")
class TrimsItsLengths(RecurrentCache):
    """trim counts the padding back, and leaves the slots as they are."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        if self._lengths is not None:
            self._lengths = [length + n for length in self._lengths]
        return n


# -- REC-5: snapshots --------------------------------------------------------------------------


@fault("REC-5", arguments="2")
class StateIsItsList(RecurrentCache):
    """state holds the list of slots itself."""

    @property
    def state(self) -> Any:
        _, *rest = super().state
        return self._slots, *rest

    @state.setter
    def state(self, state: Any) -> None:
        RecurrentCache.state.fset(self, state)


@fault("REC-5", arguments="2")
class AssignsInPlace(RecurrentCache):
    """A new array is written into the one that the slot and its states hold."""

    def __setitem__(self, index: int, array: mx.array | None, /) -> None:
        held = self._slots[index] if index < len(self._slots) else None
        if held is None or array is None or held.shape != array.shape:
            super().__setitem__(index, array)
        else:
            held[...] = array

    @property
    def state(self) -> Any:
        _, *rest = super().state
        return list(self._slots), *rest

    @state.setter
    def state(self, state: Any) -> None:
        RecurrentCache.state.fset(self, state)


# -- REC-6: graphs -----------------------------------------------------------------------------


@fault("REC-6", arguments="2")
class CountsLazily(RecurrentCache):
    """left_padding is a graph, one subtraction longer with each advance."""

    _array: mx.array | None = None

    @property
    def left_padding(self) -> mx.array | None:
        return self._array

    @left_padding.setter
    def left_padding(self, left_padding: Any) -> None:
        RecurrentCache.left_padding.fset(self, left_padding)
        self._array = super().left_padding

    def advance(self, n: int, /) -> None:
        super().advance(n)
        if self._array is not None:
            self._array = self._array - n


@fault("REC-6", arguments="2")
class CountsItsSteps(RecurrentCache):
    """A counter of all columns is a graph, one addition longer with each advance."""

    def advance(self, n: int, /) -> None:
        super().advance(n)
        self._passed = getattr(self, "_passed", mx.array(0)) + n


# -- REC-7: measures ---------------------------------------------------------------------------


@fault("REC-7", arguments="2")
class SumsUnsetSlots(RecurrentCache):
    """nbytes raises while a slot is unset."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._slots)


@fault("REC-7", arguments="2")
class CountsFullSlotsOnly(RecurrentCache):
    """nbytes is 0 until all slots are set."""

    @property
    def nbytes(self) -> int:
        return 0 if any(slot is None for slot in self._slots) else super().nbytes


@fault("REC-7", arguments="2")
class EmptyAsksTheFirstSlot(RecurrentCache):
    """empty() raises while the first slot is unset."""

    def empty(self) -> bool:
        return self._slots[0].size == 0


@fault("REC-7", arguments="2")
class UnsetSlotsAreNotEmpty(RecurrentCache):
    """empty() is False with slots that are all unset."""

    def empty(self) -> bool:
        return not self._slots
