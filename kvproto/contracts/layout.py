"""Layouts: which cache serves which layer of a model.

The layers of a model are of three kinds: full attention and sliding-window attention, whose keys
and values an engine keeps itself, and auxiliary layers (recurrent ones), which keep the cache that
the model makes. An engine counts them twice: the caches of a request by attention layer, and the
buffers of a pool by full-attention layer. Wherever a windowed layer comes before a full one, the
two indices of a layer differ.

A layout is not a cache. Where its constructor takes ``layers``, ``attention_attrs`` (for each
layer the name of its attention module, None for an auxiliary layer) and ``layer_window_sizes``
(the window of each windowed layer, by index), it is tried with many models; otherwise only as it
was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kvproto.clause import REGISTRY, Clause, Level


class CacheLayout(Protocol):
    """The kinds of the layers of a model, and their indices into caches and pools."""

    @property
    def num_layers(self) -> int: ...

    @property
    def attention_layer_indices(self) -> Sequence[int]:
        """The attention layers, full and windowed, in ascending order."""
        ...

    @property
    def auxiliary_layer_indices(self) -> Sequence[int]:
        """All other layers, in ascending order."""
        ...

    @property
    def first_attention_layer_index(self) -> int:
        """The layer that an engine reads the length of a request from.

        Raises:
            RuntimeError: the model has no attention layers.
        """
        ...

    @property
    def attention_pool_index_by_layer(self) -> Mapping[int, int]:
        """Of each attention layer, its index among the attention layers."""
        ...

    @property
    def full_kv_pool_index_by_layer(self) -> Mapping[int, int]:
        """Of each full-attention layer, its index among the full-attention layers."""
        ...

    def window_size(self, layer: int, /) -> int | None:
        """The window of a windowed layer, in tokens; None for every other layer."""
        ...

    def attention_pool_index(self, layer: int, /) -> int:
        """The index of a layer's cache among the caches of a request.

        Raises:
            KeyError: it is no attention layer.
        """
        ...

    def full_kv_pool_index(self, layer: int, /) -> int:
        """The index of a layer's buffer in a pool.

        Raises:
            KeyError: it is no full-attention layer.
        """
        ...


DISCOVERY = "sglang: MLXModelRunner (one entry a layer, from find_attention_layers)"
CACHES = "sglang: MLXModelRunner._new_native_cache (a cache for each kind of layer)"
CONTEXT = "sglang: BatchedDecodeContext (caches by attention layer, buffers by full layer)"
LENGTH = "sglang: MLXModelRunner._first_attention_cache (the length of a request)"
PREFIX = "sglang: MLXModelRunner._cache_with_pool_backed_attention (pool index of each layer)"

CONTRACT = REGISTRY.register(
    "layout",
    "Layouts",
    "Every layer of a model has one cache of its kind, and an index that is its own.",
    (
        Clause(
            "LAY-1",
            Level.MUST,
            "need one entry for each layer, and refuse another number with a ValueError that "
            "gives both counts.",
            "The last layers get no cache, or the layers after a gap get those of their "
            "neighbours.",
            (DISCOVERY,),
            who="A layout",
        ),
        Clause(
            "LAY-2",
            Level.MUST,
            "put every layer either with the attention layers or with the auxiliary ones, each in "
            "ascending order, give the window of each windowed layer and of no other, and count "
            "the attention layers, and those of full attention, from 0 up without a gap.",
            "Two layers share a cache or a buffer of the pool, or one has none.",
            (CACHES, CONTEXT),
            who="A layout",
        ),
        Clause(
            "LAY-3",
            Level.MUST,
            "refuse to give the cache index of a layer without attention, or the pool index of one "
            "without full attention, with a KeyError that names the layer; and the first attention "
            "layer of a model that has none with a RuntimeError that says so.",
            "A made-up index is another layer's: its cache or buffer is read and written.",
            (PREFIX, LENGTH),
            who="A layout",
        ),
        Clause(
            "LAY-4",
            Level.MUST,
            "write the new token of each request to the buffer of the layer's pool index, and "
            "nothing of a windowed layer; and refuse with ValueError to write without the map of "
            "pool indices.",
            "The index of a cache is taken for that of a buffer: where windowed layers come "
            "first, tokens are written to the buffer of another layer.",
            (CONTEXT,),
            who="A decode step that writes to a pool",
        ),
    ),
)
