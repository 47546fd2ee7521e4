"""Caches that misbehave in ways that no check asks about: each must be named, and end only its
own run."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_impl import KVCache


class Single(KVCache):
    """Sound; not to be merged, for the inherited merge would make another class (BATCH-2)."""

    merge = None  # type: ignore[assignment]


class Hangs(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        while True:
            pass


class HangsWhenMade(Single):
    def __init__(self) -> None:
        while True:
            pass


class HangsLater(Single):
    """Works for three tokens."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        while self.offset > 3:
            pass
        return super().update_and_fetch(keys, values)


class HangsAndHolds(Single):
    """Lets no Exception through."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Devours(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        held = []
        while True:
            held.append(b"x" * 2**24)


class ReturnsNumpy(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        return tuple(np.array(rows) for rows in super().update_and_fetch(keys, values))


class ReturnsLists(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        return tuple(rows.tolist() for rows in super().update_and_fetch(keys, values))


class ReturnsGenerator(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        return (rows for rows in super().update_and_fetch(keys, values))


class MasksAreLists(Single):
    def make_mask(self, N: int, **options: Any) -> Any:
        return [[True] * N]


class HasEverything:
    """Answers to any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **named: self


class Slotted:
    """Has no ``__dict__``, and stores nothing."""

    __slots__ = ("offset", "state")

    def __init__(self) -> None:
        self.offset = 0
        self.state = ()

    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        self.offset += keys.shape[2]
        return keys, values


class Proxy:
    """Passes every name on to a sound cache."""

    def __init__(self) -> None:
        object.__setattr__(self, "_inner", Single())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(object.__getattribute__(self, "_inner"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)


class Unheard(BaseException):
    pass


class RaisesBase(Single):
    def update_and_fetch(self, keys: Any, values: Any, /) -> Any:
        if self.offset:
            raise Unheard("no Exception")
        return super().update_and_fetch(keys, values)


class RaisesInterrupt(Single):
    def make_mask(self, N: int, **options: Any) -> Any:
        raise KeyboardInterrupt


class RaisesExit(Single):
    @property
    def offset(self) -> Any:
        raise SystemExit(0)


class EveryThirdDiffers(Single):
    """Every third instance counts one token too many."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self._extra = int(type(self).made % 3 == 0)

    @property
    def offset(self) -> Any:
        return self._offset + self._extra
