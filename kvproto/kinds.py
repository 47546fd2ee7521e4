"""The kinds of cache that people name, composed of the contracts' protocols.

They are for annotations. A class need not inherit them, and better does not: a plain attribute
cannot override the read-only properties that let every kind of attribute match.

What reads a list of caches takes a ``Sequence`` of one of these, not a ``list``: a ``list`` of
some class is no ``list`` of a protocol, because somebody could append another class to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kvproto.contracts.batch import Batched, Paddable
from kvproto.contracts.composite import HasChildren
from kvproto.contracts.datafree import DataFreeCache
from kvproto.contracts.mask import MakesAttentionMask
from kvproto.contracts.position import HasOffset
from kvproto.contracts.quantize import AffineTriple, QuantizedDispatch
from kvproto.contracts.recurrent import CountsPadding, HasSlots, MakesRecurrentMask
from kvproto.contracts.state import HasState
from kvproto.contracts.update import UpdatesAndFetches
from kvproto.contracts.window import FrontTrimming

if TYPE_CHECKING:
    import mlx.core as mx  # noqa: F401 (named in forward references)

__all__ = [
    "AttentionCache",
    "BatchCache",
    "BatchRecurrentCache",
    "ChunkedCache",
    "CompositeCache",
    "DataFreeCache",
    "PromptCache",
    "QuantizedAttentionCache",
    "RecurrentCache",
    "StorageBackedCache",
]


class AttentionCache(
    HasOffset[int], MakesAttentionMask, HasState, UpdatesAndFetches["mx.array"], Protocol
):
    """What an attention layer of a single sequence uses: position, mask, state and plain arrays."""


class QuantizedAttentionCache(
    HasOffset[int],
    MakesAttentionMask,
    HasState,
    UpdatesAndFetches[AffineTriple],
    QuantizedDispatch,
    Protocol,
):
    """What a layer uses that attends to quantised keys and values; ``bits`` says that it is one."""


class ChunkedCache(
    HasOffset[int], HasState, UpdatesAndFetches["mx.array"], FrontTrimming, Protocol
):
    """What a layer with chunked attention uses, whose model makes the masks itself (Llama 4)."""


class BatchCache(
    HasOffset["mx.array"],
    MakesAttentionMask,
    HasState,
    UpdatesAndFetches["mx.array"],
    Batched,
    Paddable,
    Protocol,
):
    """A batch for an attention layer: one offset for each row, shape ``(B,)``."""


class RecurrentCache(HasSlots, CountsPadding, MakesRecurrentMask, HasState, Protocol):
    """What convolution and state-space layers use: slots instead of keys and values."""


class BatchRecurrentCache(RecurrentCache, Batched, Paddable, Protocol):
    """A batch for a recurrent layer."""


class CompositeCache(HasChildren, HasState, Protocol):
    """Several caches of one layer. It has no position, mask or update of its own."""


class StorageBackedCache(UpdatesAndFetches[Any], Protocol):
    """A cache that keeps what is appended; what :func:`kvproto.is_storage_backed` narrows to.

    A :class:`~kvproto.contracts.datafree.DataFreeCache` is none, although its ``update_and_fetch``
    returns ``Never``: it takes no arrays.
    """


PromptCache: TypeAlias = Sequence[HasState]
"""One cache a stateful layer, in the order of the layers, as what evaluates them takes it."""
