"""Faults of the restore contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from typing_extensions import Self

from reference_impl import ChunkedKVCache, KVCache, SlidingWindowKVCache
from tests.faults.bases import Rows, StepKVCache
from tests.faults.gallery import Absent, fault

# -- REST-1: it goes on where the original stood -----------------------------------------------
# Where the state itself is lacking, what comes back has an equal state and is another cache; an
# empty one, too, where rows do not matter (REST-3).


@fault("REST-1", arguments="8")
class OffsetIsNotSaved(SlidingWindowKVCache):
    """state has no offset; restored, it stands at the number of its rows."""

    @property
    def state(self) -> Any:
        keys, values, *_ = super().state
        return keys, values, self._window

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, window = state
        offset = 0 if keys is None else keys.shape[2]
        SlidingWindowKVCache.state.fset(self, (keys, values, offset, window, 0))


@fault("REST-1", also=("REST-3",), arguments="8, sinks=2")
class SinksAreNotSaved(SlidingWindowKVCache):
    """state has no number of sinks; restored, it has none."""

    @property
    def state(self) -> Any:
        return super().state[:4]

    @state.setter
    def state(self, state: Any) -> None:
        SlidingWindowKVCache.state.fset(self, (*state, 0))


@fault("REST-1", arguments="8")
class StartIsNotSaved(ChunkedKVCache):
    """state has no start_position; restored, it takes its offset for the rows it holds."""

    @property
    def state(self) -> Any:
        keys, values, offset, _, chunk_size = super().state
        return keys, values, offset, chunk_size

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, _, chunk_size = state
        rows = 0 if keys is None else keys.shape[2]
        ChunkedKVCache.state.fset(self, (keys, values, rows, 0, chunk_size))


class Freezable(KVCache):
    """Stops storing while it is frozen, which meta_state keeps as text, as older dialects do."""

    _frozen: Any = False

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if self._frozen:
            keys, values = mx.zeros_like(keys), mx.zeros_like(values)
        return super().update_and_fetch(keys, values)

    @property
    def meta_state(self) -> Any:
        return (str(self._frozen),)

    @meta_state.setter
    def meta_state(self, meta_state: Any) -> None:
        (frozen,) = meta_state
        self._frozen = frozen == "True"

    @classmethod
    def from_state(cls, state: Any, meta_state: Any) -> Self:
        cache = super().from_state(state)
        cache.meta_state = meta_state
        return cache


@fault("REST-1", also=("REST-3",))
class FalseComesBackTrue(Freezable):
    """A flag comes back as the string "False", which is true."""

    @property
    def meta_state(self) -> Any:
        return Freezable.meta_state.fget(self)

    @meta_state.setter
    def meta_state(self, meta_state: Any) -> None:
        (self._frozen,) = meta_state


@fault("REST-1")
class RestoresItsHeadsReversed(KVCache):
    """from_state reverses the heads, and state reverses them back."""

    _reversed = False

    @property
    def state(self) -> Any:
        keys, values, offset = super().state
        if self._reversed and keys is not None:
            return keys[:, ::-1], values[:, ::-1], offset
        return keys, values, offset

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, offset = state
        if keys is not None:
            keys, values = keys[:, ::-1], values[:, ::-1]
        KVCache.state.fset(self, (keys, values, offset))
        self._reversed = True


# -- REST-2: what __init__ sets up -------------------------------------------------------------
# An empty cache that is restored lacks it, too: what the first pass needs breaks REST-3.


@fault("REST-2", also=("REST-3",))
class StepIsSetUpInInit(KVCache):
    """from_state does not make the attribute that an append adds to."""

    def __init__(self) -> None:
        super().__init__()
        self._appends = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._appends += 1
        return super().update_and_fetch(keys, values)


@fault("REST-2", also=("REST-3",))
class MaskIsSetUpInInit(KVCache):
    """from_state does not make the attribute that make_mask reads."""

    def __init__(self) -> None:
        super().__init__()
        self._least = 1

    def make_mask(self, N: int, /, **options: Any) -> Any:
        assert self._least
        return super().make_mask(N, **options)


@fault("REST-2")
class NbytesIsSetUpInInit(KVCache):
    """from_state does not make the attribute that nbytes reads."""

    def __init__(self) -> None:
        super().__init__()
        self._further: list[mx.array] = []

    @property
    def nbytes(self) -> int:
        return KVCache.nbytes.fget(self) + sum(array.nbytes for array in self._further)


@fault("REST-2")
class SizeIsSetUpInInit(KVCache):
    """from_state does not make the attribute that size() reads."""

    def __init__(self) -> None:
        super().__init__()
        self._evicted = 0

    def size(self) -> int:
        return super().size() - self._evicted


# -- REST-3: an empty cache --------------------------------------------------------------------


@fault("REST-3")
class RefusesTheEmptyState(KVCache):
    """It cannot be restored from (None, None, 0), its own state when empty."""

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, _ = state
        KVCache.state.fset(self, (keys, values, keys.shape[2]))


@fault("REST-3", arguments="8")
class EmptyForgetsItsWindow(SlidingWindowKVCache):
    """Restored while empty it has a window of 4096."""

    @property
    def state(self) -> Any:
        keys, values, offset, window, sinks = super().state
        return (keys, values, offset, window, sinks) if offset else ()

    @state.setter
    def state(self, state: Any) -> None:
        SlidingWindowKVCache.state.fset(self, state or (None, None, 0, 4096, 0))


# -- REST-4: class and types -------------------------------------------------------------------


@fault("REST-4")
class ComesBackAsItsBase(KVCache):
    """from_state makes the base class."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        return KVCache.from_state(state)


@fault("REST-4")
class FlagComesBackAsText(KVCache):
    """A bool of its state comes back as a string."""

    _seen: Any = False

    @property
    def state(self) -> Any:
        return *super().state, self._seen

    @state.setter
    def state(self, state: Any) -> None:
        *rest, seen = state
        KVCache.state.fset(self, tuple(rest))
        self._seen = str(seen)


@fault("REST-4")
class CountComesBackAsFloat(KVCache):
    """An int of its state comes back as a float."""

    _appends: Any = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._appends += 1
        return super().update_and_fetch(keys, values)

    @property
    def state(self) -> Any:
        return *super().state, self._appends

    @state.setter
    def state(self, state: Any) -> None:
        *rest, appends = state
        KVCache.state.fset(self, tuple(rest))
        self._appends = float(appends)


@fault("REST-4")
class CountStartsAnew(KVCache):
    """A count of its state is 0 after restoring."""

    _appends = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._appends += 1
        return super().update_and_fetch(keys, values)

    @property
    def state(self) -> Any:
        return *super().state, self._appends

    @state.setter
    def state(self, state: Any) -> None:
        *rest, _ = state
        KVCache.state.fset(self, tuple(rest))
        self._appends = 0


# -- REST-5: by way of a file ------------------------------------------------------------------


@fault("REST-5")
class TakesTuplesOnly(KVCache):
    """A state that is a list is refused."""

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        if not isinstance(state, tuple):
            raise TypeError(f"{type(self).__name__}: state must be a tuple")
        KVCache.state.fset(self, state)


LAYOUT = "keys, values"
"""Tells how the rows of a state lie."""


@fault("REST-5")
class ComparesByIdentity(KVCache):
    """It knows a word in its state only if it is the very same object."""

    @property
    def state(self) -> Any:
        return *super().state, LAYOUT

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, offset, layout = state
        if layout is not LAYOUT:
            keys, values = values, keys
        KVCache.state.fset(self, (keys, values, offset))


# -- REST-6: independence ----------------------------------------------------------------------


@fault("REST-6")
class SharesItsBuffers(StepKVCache):
    """State is its buffers, and restoring takes them over, both to be written in place."""

    @property
    def state(self) -> Any:
        return *(self._buffers or (None, None)), self._offset

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, self._offset = state
        self._buffers = None if keys is None else (keys, values)
        self._reserved = 0


@fault("REST-6")
class SharesItsPieces(KVCache):
    """Its state is the list of its chunks, and restoring takes the list over."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[Rows] = []

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if keys.shape[2] == 0:
            return super().update_and_fetch(keys, values)
        super().update_and_fetch(keys, values)
        self._pieces.append((keys[...], values[...]))
        held, other = zip(*self._pieces, strict=True)
        keys, values = mx.concatenate(held, axis=2), mx.concatenate(other, axis=2)
        self._buffers = keys, values
        self._offset = keys.shape[2]
        return self.keys_and_values()

    @property
    def state(self) -> Any:
        return self._pieces, self._offset

    @state.setter
    def state(self, state: Any) -> None:
        self._pieces, self._offset = state
        self._reserved = 0
        self._buffers = None
        if self._pieces:
            held, other = zip(*self._pieces, strict=True)
            self._buffers = mx.concatenate(held, axis=2), mx.concatenate(other, axis=2)

    is_trimmable = trim = Absent()


# -- REST-8: assigning to a live cache ---------------------------------------------------------


@fault("REST-8")
class KeepsItsOldRows(KVCache):
    """Assigning a state puts its rows behind those that are held."""

    _offset = 0
    _buffers = None

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        held = self._buffers and self.keys_and_values()
        KVCache.state.fset(self, state)
        if held and self._buffers:
            keys, values = self._buffers
            self._buffers = (
                mx.concatenate([held[0], keys], axis=2),
                mx.concatenate([held[1], values], axis=2),
            )
            self._offset = self._buffers[0].shape[2]


@fault("REST-8")
class KeepsItsOldOffset(KVCache):
    """Assigning a state with fewer tokens leaves offset where it was."""

    _offset = 0

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        before = self._offset
        KVCache.state.fset(self, state)
        self._offset = max(before, self._offset)


@fault("REST-8")
class KeepsItsOldFlag(KVCache):
    """A cache that was appended to in chunks gives the rows of a state the wrong way round."""

    _reversed = False

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if not self._offset:
            self._reversed = keys.shape[2] > 1
        return super().update_and_fetch(keys, values)

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        keys, values, offset = state
        if self._reversed and keys is not None:
            keys, values = keys[:, :, ::-1], keys[:, :, ::-1]
        KVCache.state.fset(self, (keys, values, offset))
