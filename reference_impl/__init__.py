"""Reference KV caches for MLX: one module a kind of cache, written to be read beside the contracts.

The classes inherit nothing from the spec; they meet its protocols by their shape alone.
"""

from reference_impl.datafree import OffsetCache
from reference_impl.full import KVCache
from reference_impl.window import SlidingWindowKVCache

__all__ = ["KVCache", "OffsetCache", "SlidingWindowKVCache"]
