"""Faults of the read-back contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_impl import KVCache, SlidingWindowKVCache
from tests.faults.bases import ExposedKVCache, Rows
from tests.faults.gallery import fault


def updated(cache: Any, base: type, keys: mx.array, values: mx.array) -> Rows:
    """What ``base`` returns for an append to ``cache``.

    update_and_fetch of the reference caches ends with keys_and_values; here the two are apart.
    """
    result = base.update_and_fetch(cache, keys, values)
    return result if cache._buffers is None else base.keys_and_values(cache)


@fault("READ-1")
class ReadsOneRowLess(KVCache):
    """keys_and_values() leaves out the newest row."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, KVCache, keys, values)

    def keys_and_values(self) -> Rows:
        keys, values = super().keys_and_values()
        return keys[:, :, :-1], values[:, :, :-1]


# Spare rows lie past offset.
@fault("READ-1", also=("READ-2",))
class ReadsTheWholeBuffer(KVCache):
    """keys_and_values() gives the buffers, spare rows included."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, KVCache, keys, values)

    def keys_and_values(self) -> Rows:
        return self._buffers or super().keys_and_values()


@fault("READ-1", arguments="8")
class ReadsTheWindowOnly(SlidingWindowKVCache):
    """keys_and_values() gives the last W rows, and the update returned W - 1 + S."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, SlidingWindowKVCache, keys, values)

    def keys_and_values(self) -> Rows:
        keys, values = super().keys_and_values()
        return keys[:, :, -self._window :], values[:, :, -self._window :]


@fault("READ-1", arguments="8")
class ReadsInRingOrder(SlidingWindowKVCache):
    """keys_and_values() gives the rows in the order of a ring once tokens were dropped."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, SlidingWindowKVCache, keys, values)

    def keys_and_values(self) -> Rows:
        keys, values = super().keys_and_values()
        turn = max(self._offset - self._window, 0)
        return mx.roll(keys, turn, axis=2), mx.roll(values, turn, axis=2)


# Its state is what it reads back, so the values are never evaluated.
@fault("READ-1", also=("STATE-2",))
class ReadsValuesTwice(KVCache):
    """keys_and_values() gives (keys, keys)."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, KVCache, keys, values)

    def keys_and_values(self) -> Rows:
        keys, _ = super().keys_and_values()
        return keys, keys


@fault("READ-1")
class ReadsStaleValues(KVCache):
    """The values of keys_and_values() are one row behind its keys."""

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        return updated(self, KVCache, keys, values)

    def keys_and_values(self) -> Rows:
        keys, values = super().keys_and_values()
        return keys, mx.roll(values, 1, axis=2)


@fault("READ-1")
class ReadingAdvances(KVCache):
    """keys_and_values() moves offset, as an append would."""

    _read = 0

    @property
    def offset(self) -> int:
        return self._offset + self._read

    @offset.setter
    def offset(self, offset: int) -> None:
        KVCache.offset.fset(self, offset)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        try:
            return super().update_and_fetch(keys, values)
        finally:
            self._read = 0

    @property
    def state(self) -> Any:
        return self._buffers, self._offset

    def keys_and_values(self) -> Rows:
        self._read += 1
        return super().keys_and_values()


# What was trimmed shows, which is more than the last update returned less the trimmed.
@fault("READ-2", also=("READ-1",))
class ReadsTrimmedRows(KVCache):
    """keys_and_values() gives trimmed rows back until the next append."""

    _most = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> Rows:
        result = updated(self, KVCache, keys, values)
        self._most = self._offset
        return result

    def keys_and_values(self) -> Rows:
        keys, values = self._buffers or super().keys_and_values()
        return keys[:, :, : self._most], values[:, :, : self._most]


@fault("READ-3")
class BuffersAreReadOnly(ExposedKVCache):
    """keys and values cannot be set."""

    keys = property(ExposedKVCache.keys.fget)
    values = property(ExposedKVCache.values.fget)


@fault("READ-3")
class BuffersAreCopies(ExposedKVCache):
    """What is written to keys is forgotten."""

    @property
    def keys(self) -> Any:
        return ExposedKVCache.keys.fget(self)

    @keys.setter
    def keys(self, keys: mx.array) -> None:
        self._sent = keys


@fault("READ-4")
class EmptyReadFails(KVCache):
    """keys_and_values() of an empty cache is TypeError: 'NoneType' is not iterable."""

    def keys_and_values(self) -> Rows:
        keys, values = self._buffers
        return keys[:, :, : self._offset], values[:, :, : self._offset]


@fault("READ-4")
class EmptyReadNamesNoClass(KVCache):
    """keys_and_values() of an empty cache does not say which class is empty."""

    def keys_and_values(self) -> Rows:
        if self._buffers is None:
            raise RuntimeError("the cache is empty")
        return super().keys_and_values()


@fault("READ-4")
class EmptyReadGivesARow(KVCache):
    """keys_and_values() of an empty cache gives a row of zeros."""

    def keys_and_values(self) -> Rows:
        if self._buffers is None:
            return mx.zeros((1, 3, 1, 8)), mx.zeros((1, 3, 1, 12))
        return super().keys_and_values()
