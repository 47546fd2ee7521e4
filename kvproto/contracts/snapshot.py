"""Snapshots: stored copies of the caches of a request, to go on from later.

A transaction is a snapshot for one decision: proposed tokens are verified on copies of the caches,
and then as many of them as were accepted are fed to the caches themselves. That is how to
speculate with caches that cannot be trimmed (a wrapped window, recurrent state).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kvproto.clause import REGISTRY, Clause, Level


class SnapshotStore(Protocol):
    """Copies of lists of layer caches, by an index that its owner chooses."""

    def store_cache(self, index: int, cache: Sequence[Any], layers: Iterable[int], /) -> None:
        """Keep a copy of these layers under ``index``, in place of what was there."""
        ...

    def restore_cache(self, index: int, cache: Sequence[Any], /) -> bool:
        """Put the stored layers into these caches; False, and nothing done, if there are none."""
        ...


class CacheTransaction(Protocol):
    """Proposed tokens for the caches of a request, to be taken or dropped; serves once."""

    def begin(self) -> Sequence[Any]:
        """Copies of the caches, to verify the proposed tokens on."""
        ...

    def commit(self, count: int, /) -> Any:
        """Feed the first ``count`` proposed tokens to the caches; returns what that returned.

        Raises:
            RuntimeError: not begun, or over.
        """
        ...

    def abort(self) -> None:
        """Leave the caches as they are.

        Raises:
            RuntimeError: not begun, or over.
        """
        ...


class MakesTransactions(Protocol):
    """What opens transactions over the caches of a request."""

    def transaction(
        self,
        caches: list[Any],
        tokens: Sequence[int],
        forward: Callable[[Sequence[Any], Sequence[int]], Any],
        /,
    ) -> CacheTransaction:
        """A transaction over ``caches``, where ``forward(caches, tokens)`` feeds them tokens."""
        ...


COMPONENT = "sglang: MlxAuxiliaryStatePool (state of recurrent layers at a prefix boundary)"

SPECULATION = "sglang: speculative decoding of Gemma 4, sgl-project/sglang#32264 (accepted prefix)"

CONTRACT = REGISTRY.register(
    "snapshot",
    "Snapshots",
    "A stored copy stays as it was, and brings back the position that it was taken at; "
    "a transaction takes proposed tokens or drops them.",
    (
        Clause(
            "SNAP-1",
            Level.MUST,
            "keep what it stored unaffected by later use of the source and of every cache that "
            "was restored from it, and restore it any number of times.",
            "A second request with the same prefix goes on from the end of the first one.",
            (COMPONENT,),
            ("sgl-project/sglang#32450",),
            who="A snapshot store",
        ),
        Clause(
            "SNAP-2",
            Level.MUST,
            "restore the position along with the content, whatever the cache held before, so that "
            "it goes on exactly where the snapshot was taken; and change nothing, saying False, "
            "where nothing is stored.",
            "The next token is computed at a position that the content does not belong to.",
            (COMPONENT,),
            ("sgl-project/sglang#32512",),
            who="A snapshot store",
        ),
        Clause(
            "SNAP-3",
            Level.MUST,
            "leave the caches, by abort, exactly as they were; by commit(k) as feeding them the "
            "first k tokens does; and by a commit that fails, which raises, as they were. It "
            "serves once: what is called after that raises RuntimeError and changes nothing.",
            "Rejected tokens stay in a cache that cannot be trimmed, or accepted ones are fed "
            "twice.",
            (SPECULATION,),
            who="A transaction",
        ),
    ),
)
