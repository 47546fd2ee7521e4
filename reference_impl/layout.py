"""Which cache serves which layer of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reference_impl.arguments import check_int
from reference_impl.decode import BatchedDecode
from reference_impl.pool import KVPool


class CacheLayout:
    """The layers of a model by what they keep: all keys and values, those of a window, or a state
    of another kind.

    Every layer is either an attention layer or an auxiliary one (LAY-2). The attention layers are
    counted from 0 up, which is the index of a layer's cache; those without a window once more,
    which is the index of a layer's buffer in a pool. A pool keeps every token of a request, so a
    windowed layer has nothing to do with one.

    Args:
        layers: the layers of the model, whatever they are.
        attention_attrs: for each layer the name of its attention module; None makes it auxiliary.
        layer_window_sizes: the window of each sliding-window layer, in tokens and by its index.
            None, or a layer that is left out, is full attention.

    Raises:
        TypeError: an index or window is not an int.
        ValueError: another number of attributes than of layers (LAY-1), a window below 1, or one
            of a layer that is no attention layer.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        attention_attrs: Sequence[str | None],
        layer_window_sizes: Mapping[int, int | None] | None = None,
    ) -> None:
        owner = type(self).__name__
        if len(layers) != len(attention_attrs):
            raise ValueError(
                f"{owner}: attention_attrs must have one entry for each of the {len(layers)} "
                f"layers, got {len(attention_attrs)}"
            )
        attention = [layer for layer, attr in enumerate(attention_attrs) if attr is not None]
        windows = {}
        for layer, window in (layer_window_sizes or {}).items():
            if window is None:
                continue
            if layer not in attention:
                raise ValueError(
                    f"{owner}: layer_window_sizes must name attention layers, {attention}, "
                    f"got {layer!r}"
                )
            windows[layer] = check_int(owner, f"window of layer {layer}", window, minimum=1)
        self.num_layers = len(layers)
        self.attention_layer_indices = tuple(attention)
        self.auxiliary_layer_indices = tuple(
            layer for layer in range(len(layers)) if layer not in attention
        )
        self.attention_pool_index_by_layer = {layer: i for i, layer in enumerate(attention)}
        full = [layer for layer in attention if layer not in windows]
        self.full_kv_pool_index_by_layer = {layer: i for i, layer in enumerate(full)}
        self._windows = windows

    @property
    def first_attention_layer_index(self) -> int:
        """The first attention layer: all of them stand at the offset of its cache.

        Raises:
            RuntimeError: there is none (LAY-3).
        """
        if not self.attention_layer_indices:
            raise RuntimeError(
                f"{type(self).__name__}: the model has no attention layers "
                f"(none of {self.num_layers} has an attention attribute)"
            )
        return self.attention_layer_indices[0]

    def window_size(self, layer: int, /) -> int | None:
        """The window of a layer, in tokens; None for one that has none."""
        return self._windows.get(layer)

    def attention_pool_index(self, layer: int, /) -> int:
        """The index of a layer's cache among those of a request.

        Raises:
            KeyError: it is no attention layer (LAY-3).
        """
        return self._index(self.attention_pool_index_by_layer, layer, "an attention layer")

    def full_kv_pool_index(self, layer: int, /) -> int:
        """The index of a layer's buffer in a pool.

        Raises:
            KeyError: it is no full-attention layer (LAY-3).
        """
        return self._index(self.full_kv_pool_index_by_layer, layer, "a full-attention layer")

    def batched_decode(
        self,
        caches: Sequence[Sequence[Any]],
        /,
        *,
        pool: KVPool | None = None,
        slots: Sequence[int] | None = None,
    ) -> BatchedDecode:
        """A decode step over requests, by the windows and pool indices of this layout.

        Args:
            caches: for each request one entry for each layer; those of auxiliary layers are not
                looked at.
            pool: where the new tokens of full-attention layers are kept as well.
            slots: a slot of the pool for each request.

        Raises:
            TypeError: a slot is not an int.
            ValueError: a request with another number of layers, or what :class:`BatchedDecode`
                refuses.
        """
        for row, request in enumerate(caches):
            if len(request) != self.num_layers:
                raise ValueError(
                    f"{type(self).__name__}: caches of request {row} must have one entry for each "
                    f"of the {self.num_layers} layers, got {len(request)}"
                )
        return BatchedDecode(
            {
                layer: [request[layer] for request in caches]
                for layer in self.attention_layer_indices
            },
            self._windows,
            pool=pool,
            slots=slots,
            pool_index_by_layer=self.full_kv_pool_index_by_layer,
        )

    def _index(self, known: Mapping[int, int], layer: int, kind: str) -> int:
        if layer not in known:
            raise KeyError(
                f"{type(self).__name__}: layer must be {kind}, one of {list(known)}, got {layer!r}"
            )
        return known[layer]
