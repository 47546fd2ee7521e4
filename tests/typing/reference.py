"""The reference caches, assigned to the protocols that they are there to show.

Nothing here runs: mypy checks it with the rest of the project. The verdicts on every pair of
class and protocol are in table.py.
"""

from __future__ import annotations

import mlx.core as mx
from typing_extensions import assert_type

from kvproto import (
    AffineTriple,
    AttentionCache,
    BatchCache,
    BatchRecurrentCache,
    CacheLayout,
    ChunkedCache,
    CompositeCache,
    DataFreeCache,
    Decodes,
    FromState,
    Measured,
    Mergeable,
    PromptCache,
    QuantizedAttentionCache,
    ReadsBack,
    RecurrentCache,
    Restorable,
    SettableOffset,
    StorageBackedCache,
    ToQuantized,
    Trimmable,
)
from reference_impl import (
    BatchKVCache,
    BatchSlidingWindowKVCache,
    ChunkedKVCache,
    KVCache,
    OffsetCache,
    QuantizedKVCache,
    SlidingWindowKVCache,
)
from reference_impl import CacheLayout as ReferenceCacheLayout
from reference_impl import CompositeCache as ReferenceCompositeCache
from reference_impl import RecurrentCache as ReferenceRecurrentCache

full = KVCache()
window = SlidingWindowKVCache(8, sinks=2)
chunked = ChunkedKVCache(8)
quantized = QuantizedKVCache()
batch = BatchKVCache([1, 0])
batch_window = BatchSlidingWindowKVCache(8, [1, 0])
recurrent = ReferenceRecurrentCache(2)
composite = ReferenceCompositeCache(full, recurrent)
shim = OffsetCache(3)

attention: list[AttentionCache] = [full, window]
quantized_attention: QuantizedAttentionCache = quantized
chunks: ChunkedCache = chunked
batches: list[BatchCache] = [batch, batch_window]
recurrent_layer: list[RecurrentCache] = [recurrent]
recurrent_batch: BatchRecurrentCache = recurrent
container: CompositeCache = composite
data_free: DataFreeCache = shim
layout: CacheLayout = ReferenceCacheLayout([0, 1], ["self_attn", None])

storing: list[StorageBackedCache] = [full, window, chunked, quantized, batch, batch_window]
decoding: list[Decodes[mx.array]] = [full, window]
shared: list[ReadsBack[mx.array]] = [full, window, chunked, batch, batch_window]
shared_triples: ReadsBack[AffineTriple] = quantized
movable: list[SettableOffset[int]] = [full, window, quantized, shim]
convertible: ToQuantized = full
trimmed: list[Trimmable] = [full, window, chunked, quantized, batch, batch_window, composite]
measured: list[Measured] = [full, window, chunked, quantized, batch, batch_window, shim]
restored: list[Restorable] = [full, window, chunked, quantized, batch, batch_window, composite]
from_state: list[type[FromState]] = [
    *(KVCache, SlidingWindowKVCache, ChunkedKVCache, QuantizedKVCache),
    *(BatchKVCache, BatchSlidingWindowKVCache, ReferenceRecurrentCache),
]
merged: list[Mergeable] = [full, window, batch, batch_window, recurrent]


def evaluate(cache: PromptCache) -> None:
    mx.eval([layer.state for layer in cache])


evaluate([full, window, chunked, quantized, batch, batch_window, recurrent, composite, shim])
one_kind = [KVCache(), KVCache()]
assert_type(one_kind, list[KVCache])
evaluate(one_kind)
