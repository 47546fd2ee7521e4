"""Faults of the snapshot contract."""

from __future__ import annotations

from typing import Any

from reference_impl import SnapshotStore
from tests.faults.gallery import fault

# -- SNAP-1: it stays --------------------------------------------------------------------------


@fault("SNAP-1")
class StoresTheCacheItself(SnapshotStore):
    """It keeps the cache, and reads its state when it restores."""

    def store_cache(self, index: int, cache: Any, layers: Any, /) -> None:
        self._held = {layer: cache[layer] for layer in layers}

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        for layer, held in getattr(self, "_held", {}).items():
            cache[layer].state = held.state
        return hasattr(self, "_held")


@fault("SNAP-1")
class RestoresOnce(SnapshotStore):
    """A snapshot is gone once it was restored."""

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        found = super().restore_cache(index, cache)
        self.free(index)
        return found


@fault("SNAP-1")
class HandsOutTheFirstCopy(SnapshotStore):
    """The first cache that is restored becomes what the next ones are restored from."""

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        if not hasattr(self, "_given"):
            found = super().restore_cache(index, cache)
            if found:
                self._given = cache[0]
            return found
        cache[0].state = self._given.state
        return True


# -- SNAP-2: the position ----------------------------------------------------------------------


@fault("SNAP-2")
class AppendsToWhatIsThere(SnapshotStore):
    """A cache that holds tokens is left as it is."""

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        if any(not held.empty() for held in cache):
            return index in self._snapshots
        return super().restore_cache(index, cache)


@fault("SNAP-2")
class SaysTrueForNothing(SnapshotStore):
    """restore_cache says True although nothing is stored."""

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        super().restore_cache(index, cache)
        return True


@fault("SNAP-2")
class ClearsForNothing(SnapshotStore):
    """Where nothing is stored it empties the caches."""

    def restore_cache(self, index: int, cache: Any, /) -> bool:
        if index not in self._snapshots:
            for held in cache:
                held.trim(held.offset)
        return super().restore_cache(index, cache)
