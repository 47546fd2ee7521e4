"""Snapshots: stored copies of the caches of a request, to go on from later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


COMPONENT = "sglang: MlxAuxiliaryStatePool (state of recurrent layers at a prefix boundary)"

CONTRACT = REGISTRY.register(
    "snapshot",
    "Snapshots",
    "A stored copy stays as it was, and brings back the position that it was taken at.",
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
    ),
)
