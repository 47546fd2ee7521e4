"""Faults of the layout contract."""

from __future__ import annotations

from typing import Any

from reference_impl import CacheLayout
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
