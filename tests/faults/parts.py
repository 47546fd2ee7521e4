"""Faults of the restore, copying and state contracts in caches that are no attention cache."""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx

from reference_impl import RecurrentCache
from tests.faults.composite import Hybrid, Two
from tests.faults.gallery import fault

# -- copies ------------------------------------------------------------------------------------


@fault("COPY-1", arguments="2")
class CopySharesItsSlots(RecurrentCache):
    """A deep copy has the same list of slots."""

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made


@fault("COPY-1")
class CopySharesTheSecondChild(Hybrid):
    """A deep copy copies the first child only."""

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        first, *rest = self._caches
        made._caches = (copy.deepcopy(first, memo), *rest)
        return made


@fault("COPY-1", arguments="3")
class CopyLosesTheLastSlot(RecurrentCache):
    """A deep copy takes all slots but the last."""

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)(len(self._slots))
        made.state = self.state
        made._slots[-1] = None
        return made


@fault("COPY-3", arguments="2")
class PicklesItsFirstSlot(RecurrentCache):
    """Pickling keeps the first slot only."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        first, *rest = self._slots
        made = {**self.__dict__, "_slots": [first, *(None for _ in rest)]}
        return type(self), (len(self._slots),), made

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_state(self.state)


# -- restored caches ---------------------------------------------------------------------------


@fault("REST-1", arguments="2", also=("REST-3", "REST-4"))
class RestoresUnsetSlotsAsZeros(RecurrentCache):
    """A slot that was unset comes back as zeros."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        made = super().from_state(state)
        made._slots = [mx.zeros((1, 3)) if slot is None else slot for slot in made._slots]
        return made


@fault("REST-1", arguments="2", also=("REST-4",))
class RestoresSlotsInReverse(RecurrentCache):
    """The slots come back in the other order."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        slots, unset, *rest = state
        return super().from_state((slots[::-1], unset[::-1], *rest))


@fault("REST-1", also=("REST-4",))
class RestoresChildrenInReverse(Two):
    """The children come back in the other order."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        made = super().from_state(state)
        made._caches = made._caches[::-1]
        return made


@fault("REST-3", arguments="2", also=("REST-1", "REST-4"))
class RestoresOneSlotMore(RecurrentCache):
    """A restored cache has a further slot."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        made = super().from_state(state)
        made._slots.append(None)
        made._unset.append(frozenset())
        return made


@fault("REST-6", arguments="2")
class RestoredSharesItsSlots(RecurrentCache):
    """A restored cache has the list of slots of the cache that it comes from."""

    @property
    def state(self) -> Any:
        _, *rest = super().state
        return self._slots, *rest

    @state.setter
    def state(self, state: Any) -> None:
        RecurrentCache.state.fset(self, state)
        self._slots = state[0]


@fault("REST-8", arguments="2")
class AssigningKeepsSetSlots(RecurrentCache):
    """Assigning a state leaves a slot as it was where the state has none."""

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        before = getattr(self, "_slots", None)
        RecurrentCache.state.fset(self, state)
        if before is not None:
            pairs = zip(before, self._slots, strict=True)
            self._slots = [old if new is None else new for old, new in pairs]


# -- state -------------------------------------------------------------------------------------


@fault("STATE-3", arguments="2")
class StateHoldsASet(RecurrentCache):
    """Once slots are set, state says which by a frozenset."""

    @property
    def state(self) -> Any:
        slots, _, *rest = super().state
        return slots, list(self._unset) if not self.empty() else [], *rest


@fault("STATE-4", arguments="2")
class ReadingFillsUnsetSlots(RecurrentCache):
    """Reading state puts zeros into the slots that are unset beside set ones."""

    @property
    def state(self) -> Any:
        slots, *rest = super().state
        if any(slot is not None for slot in slots):
            self._slots = [mx.zeros((1, 3)) if slot is None else slot for slot in slots]
        return slots, *rest
