"""Faults of the composite contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import (
    CompositeCache,
    KVCache,
    QuantizedKVCache,
    RecurrentCache,
    SlidingWindowKVCache,
)
from tests.faults.gallery import fault


class Two(CompositeCache):
    """A sound composite of two storing caches."""

    def __init__(self) -> None:
        super().__init__(KVCache(), KVCache())


class Hybrid(CompositeCache):
    """A sound composite of a storing and a recurrent cache."""

    def __init__(self) -> None:
        super().__init__(KVCache(), RecurrentCache(2))


# -- COMP-1: all are trimmed, or none ----------------------------------------------------------


@fault("COMP-1")
class TrimmableByAny(Hybrid):
    """It is trimmable because one child is."""

    def is_trimmable(self) -> bool:
        return any(child.is_trimmable() for child in self._caches)


@fault("COMP-1")
class TrimsTheFirstChild(Two):
    """trim removes tokens of the first child only."""

    def trim(self, n: int) -> int:
        return int(self._caches[0].trim(n))


@fault("COMP-1")
class TrimsInTurn(Two):
    """trim removes from the second child what the first one has left to remove."""

    def trim(self, n: int) -> int:
        rest = n
        for child in self._caches:
            rest -= child.trim(rest)
        return n


@fault("COMP-1")
class TrimReturnsTheSum(Two):
    """trim returns the tokens removed of all children together."""

    def trim(self, n: int) -> int:
        return sum(child.trim(n) for child in self._caches)


@fault("COMP-1")
class TrimsWhatItCan(Hybrid):
    """A child that cannot be trimmed is passed over."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        return max(child.trim(n) for child in self._caches if hasattr(child, "trim"))


# -- COMP-2: every child -----------------------------------------------------------------------


# A restored composite then lacks a child, and every clause about restored caches says so.
@fault("COMP-2", also=("REST-2", "REST-3", "REST-4"))
class StateOfTheFirstChild(Hybrid):
    """state leaves out the second child."""

    @property
    def state(self) -> Any:
        names, states = super().state
        return names[:1], states[:1]

    @state.setter
    def state(self, state: Any) -> None:
        CompositeCache.state.fset(self, state)


@fault("COMP-2")
class NbytesOfTheFirstChild(Two):
    """nbytes leaves out the second child."""

    @property
    def nbytes(self) -> int:
        return int(self._caches[0].nbytes)


@fault("COMP-2")
class NbytesOfStoringChildren(Hybrid):
    """nbytes leaves out children without offset."""

    @property
    def nbytes(self) -> int:
        return sum(child.nbytes for child in self._caches if hasattr(child, "offset"))


@fault("COMP-2")
class EmptyByTheLastChild(Hybrid):
    """empty() asks the last child only, and that for its last slot."""

    def empty(self) -> bool:
        return self._caches[-1][-1] is None


# What a window has dropped then makes restoring raise, and what it hides is seen.
@fault("COMP-2", also=("REST-2", "REST-3", "REST-4"))
class RestoresAsPlain(CompositeCache):
    """Restored children are all KVCache, a windowed one too."""

    def __init__(self) -> None:
        super().__init__(KVCache(), SlidingWindowKVCache(8))

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        _, states = state
        self._caches = tuple(KVCache.from_state(child[:3]) for child in states)


@fault("COMP-2", also=("REST-1",))
class RestoresFromTheFirstState(Two):
    """Every restored child gets the state of the first one."""

    @property
    def state(self) -> Any:
        names, states = super().state
        return names, [states[0]] * len(states)

    @state.setter
    def state(self, state: Any) -> None:
        CompositeCache.state.fset(self, state)


# -- COMP-3: nothing of its own ----------------------------------------------------------------


@fault("COMP-3")
class MaskOfTheFirstChild(Hybrid):
    """It has the make_mask of its first child."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        return self._caches[0].make_mask(N, **options)


@fault("COMP-3")
class BitsOfNoMeaning(Two):
    """It has bits, which are None."""

    bits = None


# It then counts as a storing cache, and trims without an offset.
@fault("COMP-3", also=("TRIM-1", "TRIM-2"))
class UpdatesItsFirstChild(CompositeCache):
    """It has the update_and_fetch of its first child."""

    def __init__(self) -> None:
        super().__init__(KVCache(), QuantizedKVCache())

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Any:
        return self._caches[0].update_and_fetch(keys, values)


# -- COMP-4: no children -----------------------------------------------------------------------


@fault("COMP-4")
class TrimNeedsAChild(CompositeCache):
    """Without children trim raises."""

    def trim(self, n: int) -> int:
        return min(child.trim(n) for child in self._caches)


@fault("COMP-4")
class SizeNeedsAChild(CompositeCache):
    """Without children size() raises."""

    def size(self) -> int:
        return max(child.size() for child in self._caches)


@fault("COMP-4")
class EmptyNeedsAChild(CompositeCache):
    """Without children empty() raises."""

    def empty(self) -> bool:
        return self._caches[0].empty()


@fault("COMP-4")
class NoChildrenAreNotEmpty(CompositeCache):
    """Without children empty() is False."""

    def empty(self) -> bool:
        return bool(self._caches) and super().empty()


@fault("COMP-4")
class TrimsWithoutChildren(CompositeCache):
    """Without children trim says that it removed what it was asked to."""

    def trim(self, n: int) -> int:
        return super().trim(n) if self._caches else n
