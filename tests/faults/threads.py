"""Faults of the threads contract."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from reference_impl import KVCache
from reference_impl.masks import AttentionMask
from tests.faults.bases import Rows
from tests.faults.gallery import fault

# -- RUN-1: another thread ---------------------------------------------------------------------


@fault("RUN-1")
class KeepsALazyArray(KVCache):
    """Its masks depend on an array of the last append that state leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self._newest = mx.array(1)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._newest = mx.array(1) * keys.shape[2]
        return super().update_and_fetch(keys, values)

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        mask = super().make_mask(N, return_array=True, window_size=window_size)
        return mask & (self._newest > 0) if isinstance(mask, mx.array) else mask

    @classmethod
    def from_state(cls, state: Any) -> Any:
        cache = cls()
        cache.state = state
        return cache


@fault("RUN-1")
class BelongsToItsThread(KVCache):
    """It refuses to be used in another thread than the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_state(self.state)

    @property
    def state(self) -> Any:
        return super().state

    @state.setter
    def state(self, state: Any) -> None:
        KVCache.state.fset(self, state)
        self._owner = threading.get_ident()

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        if threading.get_ident() != self._owner:
            raise RuntimeError(f"{type(self).__name__} belongs to another thread")
        return super().update_and_fetch(keys, values)


# -- RUN-2: mx.compile -------------------------------------------------------------------------


@fault("RUN-2")
class SaysItCompiles(KVCache):
    """It says so, and counts its tokens in an int."""

    compilable = True

    @property
    def state(self) -> Any:
        return [*super().state]

    @state.setter
    def state(self, state: Any) -> None:
        KVCache.state.fset(self, tuple(state))


# -- RUN-3: evaluated rows are enough ----------------------------------------------------------


@fault("RUN-3")
class MasksByALazyStart(KVCache):
    """Its masks depend on an array of state that the rows do not need."""

    def __init__(self) -> None:
        super().__init__()
        self._start = mx.array(0)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        self._start = self._start + 0
        return super().update_and_fetch(keys, values)

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        mask = super().make_mask(N, return_array=True, window_size=window_size)
        return mask & (self._start == 0) if isinstance(mask, mx.array) else mask

    @property
    def state(self) -> Any:
        return *super().state, self._start

    @state.setter
    def state(self, state: Any) -> None:
        KVCache.state.fset(self, state[:3])
        self._start = state[3]
