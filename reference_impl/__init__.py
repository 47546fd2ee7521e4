"""Reference KV caches for MLX: one module a kind of cache, written to be read beside the contracts.

The classes inherit nothing from the spec; they meet its protocols by their shape alone.
"""

from reference_impl.batch import BatchKVCache
from reference_impl.batch_window import BatchSlidingWindowKVCache
from reference_impl.chunk import ChunkedKVCache
from reference_impl.composite import CompositeCache, register_child
from reference_impl.datafree import OffsetCache
from reference_impl.decode import BatchedDecode
from reference_impl.full import KVCache
from reference_impl.layout import CacheLayout
from reference_impl.opaque import RotatedKVCache, RotatedRows
from reference_impl.pool import KVPool, PoolBackedKVCache
from reference_impl.prompt import PromptFileError, PromptFiles, PromptStore, trim_prompt
from reference_impl.quantized import QuantizedKVCache
from reference_impl.recurrent import RecurrentCache
from reference_impl.snapshot import SnapshotStore, Transaction
from reference_impl.window import SlidingWindowKVCache

__all__ = [
    "BatchKVCache",
    "BatchSlidingWindowKVCache",
    "BatchedDecode",
    "CacheLayout",
    "ChunkedKVCache",
    "CompositeCache",
    "KVCache",
    "KVPool",
    "OffsetCache",
    "PoolBackedKVCache",
    "PromptFileError",
    "PromptFiles",
    "PromptStore",
    "QuantizedKVCache",
    "RecurrentCache",
    "RotatedKVCache",
    "RotatedRows",
    "SlidingWindowKVCache",
    "SnapshotStore",
    "Transaction",
    "register_child",
    "trim_prompt",
]
