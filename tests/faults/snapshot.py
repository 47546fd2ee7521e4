"""Faults of the snapshot contract."""

from __future__ import annotations

from typing import Any

from reference_impl import SnapshotStore, Transaction
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


# -- SNAP-3: transactions ----------------------------------------------------------------------


class Transacts(SnapshotStore):
    """A sound store; subclasses name the class of the transactions that it makes."""

    made: Any = Transaction

    def transaction(self, caches: Any, tokens: Any, forward: Any, /) -> Any:
        return self.made(caches, tokens, forward)


@fault("SNAP-3")
class VerifiesOnTheOriginals(Transacts):
    """begin hands out the caches themselves."""

    class Transaction(Transaction):
        def begin(self) -> list[Any]:
            super().begin()
            return self._caches

    made = Transaction


@fault("SNAP-3")
class TakesBackByTrimming(Transacts):
    """Tokens are verified on the caches themselves, and trimmed off again."""

    class Transaction(Transaction):
        def begin(self) -> list[Any]:
            super().begin()
            return self._caches

        def _trim(self) -> None:
            for held in self._caches:
                held.trim(len(self._tokens))

        def commit(self, count: int, /) -> Any:
            self._must_be("begun", "commit")
            self._trim()
            return super().commit(count)

        def abort(self) -> None:
            super().abort()
            self._trim()

    made = Transaction


@fault("SNAP-3")
class CommitsTheBonusToo(Transacts):
    """commit(k) feeds k + 1 tokens."""

    class Transaction(Transaction):
        def commit(self, count: int, /) -> Any:
            return super().commit(min(count + 1, len(self._tokens)))

    made = Transaction


@fault("SNAP-3")
class KeepsAFailedCommit(Transacts):
    """A commit that fails leaves what was fed."""

    class Transaction(Transaction):
        def commit(self, count: int, /) -> Any:
            self._must_be("begun", "commit")
            self._stage = "over"
            return self._forward(self._caches, self._tokens[:count]) if count else None

    made = Transaction


@fault("SNAP-3")
class HidesAFailedCommit(Transacts):
    """A commit that fails restores the caches, and says nothing."""

    class Transaction(Transaction):
        def commit(self, count: int, /) -> Any:
            try:
                return super().commit(count)
            except MemoryError:
                return None

    made = Transaction


@fault("SNAP-3")
class CommitsAgain(Transacts):
    """What was committed can be committed once more."""

    class Transaction(Transaction):
        def commit(self, count: int, /) -> Any:
            result = super().commit(count)
            self._stage = "begun"
            return result

    made = Transaction
