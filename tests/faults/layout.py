"""Faults of the layout contract."""

from __future__ import annotations

from typing import Any

from reference_impl import BatchedDecode, CacheLayout
from tests.faults.gallery import fault

MODEL = "[0, 1, 2], ['self_attn', None, 'self_attn'], {0: 8}"

# -- LAY-1: one entry a layer ------------------------------------------------------------------


@fault("LAY-1", arguments=MODEL)
class StopsAtTheShorterList(CacheLayout):
    """Layers and attributes are zipped."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        pairs = list(zip(layers, attention_attrs, strict=False))
        windows = {i: w for i, w in (layer_window_sizes or {}).items() if i < len(pairs)}
        super().__init__(pairs, [attr for _, attr in pairs], windows)


@fault("LAY-1", arguments=MODEL)
class CountsAreNotTold(CacheLayout):
    """The refusal does not say what was counted."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        if len(layers) != len(attention_attrs):
            raise ValueError("layers and attention attributes do not match")
        super().__init__(layers, attention_attrs, layer_window_sizes)


# -- LAY-2: a partition, and dense indices -----------------------------------------------------


@fault("LAY-2", arguments=MODEL)
class PoolTakesTheCacheIndex(CacheLayout):
    """The index of a buffer is that of the cache, windowed layers counted too."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        super().__init__(layers, attention_attrs, layer_window_sizes)
        self.full_kv_pool_index_by_layer = {
            layer: self.attention_pool_index(layer) for layer in self.full_kv_pool_index_by_layer
        }


@fault("LAY-2", arguments=MODEL)
class IndexIsTheLayer(CacheLayout):
    """Caches are counted by layer, auxiliary ones too."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        super().__init__(layers, attention_attrs, layer_window_sizes)
        self.attention_pool_index_by_layer = {i: i for i in self.attention_layer_indices}


@fault("LAY-2", arguments=MODEL)
class WindowedAreAuxiliaryToo(CacheLayout):
    """A windowed layer is with the attention layers and with the auxiliary ones."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        super().__init__(layers, attention_attrs, layer_window_sizes)
        both = {*self.auxiliary_layer_indices, *(layer_window_sizes or {})}
        self.auxiliary_layer_indices = tuple(sorted(both))


@fault("LAY-2", arguments=MODEL)
class LosesTheLastWindow(CacheLayout):
    """The last of several windowed layers is taken for one of full attention."""

    def __init__(self, layers: Any, attention_attrs: Any, layer_window_sizes: Any = None) -> None:
        windows = dict(layer_window_sizes or {})
        if len(windows) > 1:
            windows.popitem()
        super().__init__(layers, attention_attrs, windows)


# -- LAY-3: look-ups of the wrong kind ---------------------------------------------------------


@fault("LAY-3", arguments=MODEL)
class AnswersMinusOne(CacheLayout):
    """A layer without a buffer has index -1, which is the last one."""

    def full_kv_pool_index(self, layer: int, /) -> int:
        return self.full_kv_pool_index_by_layer.get(layer, -1)


@fault("LAY-3", arguments=MODEL)
class LooksUpInAList(CacheLayout):
    """An index is looked for in the list of layers, which raises ValueError."""

    def attention_pool_index(self, layer: int, /) -> int:
        return self.attention_layer_indices.index(layer)


@fault("LAY-3", arguments=MODEL)
class FirstOfNone(CacheLayout):
    """Without attention layers the first one is layer 0."""

    @property
    def first_attention_layer_index(self) -> int:
        return min(self.attention_layer_indices, default=0)


# -- LAY-4: buffers of a pool ------------------------------------------------------------------


@fault("LAY-4", arguments=MODEL)
class ScattersByCacheIndex(CacheLayout):
    """A decode step writes to the buffer of a layer's cache index."""

    def batched_decode(self, caches: Any, /, *, pool: Any = None, slots: Any = None) -> Any:
        return by_layer(self, caches, pool, slots, self.attention_pool_index_by_layer)


@fault("LAY-4", arguments=MODEL)
class ScattersToOneBuffer(CacheLayout):
    """A decode step writes all layers to the first buffer."""

    def batched_decode(self, caches: Any, /, *, pool: Any = None, slots: Any = None) -> Any:
        first = dict.fromkeys(self.full_kv_pool_index_by_layer, 0)
        return by_layer(self, caches, pool, slots, first)


@fault("LAY-4", arguments=MODEL)
class ScattersInSlotOrder(CacheLayout):
    """The slots are sorted first, those of other requests are written."""

    def batched_decode(self, caches: Any, /, *, pool: Any = None, slots: Any = None) -> Any:
        slots = sorted(slots or ())
        return by_layer(self, caches, pool, slots, self.full_kv_pool_index_by_layer)


def by_layer(layout: Any, caches: Any, pool: Any, slots: Any, pool_index: Any) -> Any:
    """A decode step with these indices of the pool's buffers."""
    held = {layer: [one[layer] for one in caches] for layer in layout.attention_layer_indices}
    windows = {layer: layout.window_size(layer) for layer in held}
    return BatchedDecode(held, windows, pool=pool, slots=slots, pool_index_by_layer=pool_index)


def by_default(
    layout: Any,
    caches: Any,
    *,
    pool: Any = None,
    slots: Any = None,
    pool_index_by_layer: Any = None,
) -> Any:
    """Without a map the indices of the caches are taken."""
    indices = pool_index_by_layer or layout.attention_pool_index_by_layer
    return by_layer(layout, caches, pool, slots, indices)


@fault("LAY-4", arguments=MODEL, claims={"batched_decode": "tests.faults.layout:by_default"})
class DefaultsToTheCacheIndex(CacheLayout):
    """A decode step takes the indices of the caches where it is given none of the pool's."""
