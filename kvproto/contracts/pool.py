"""Pools: keys and values of many requests in one store, and the cache of a request over it.

A pool keeps one row ``(n_kv_heads, D)`` for each token and layer, in slots that a scheduler hands
out; slot 0 is padding. A cache that is backed by a pool begins with a prefix that lies there
already, and appends to it without writing the pool: its owner copies new tokens over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx


class KVPool(Protocol):
    """Keys and values of tokens by layer and slot."""

    def set_kv(self, layer: int, slots: mx.array, keys: mx.array, values: mx.array, /) -> None:
        """Write S tokens, ``(S, n_kv_heads, D)`` each, to S slots (an integer array of one axis).

        Raises:
            ValueError: a slot that is negative, 0, or past the last one; nothing is written.
        """
        ...

    def get_kv(self, layer: int, slots: mx.array, /) -> tuple[mx.array, mx.array]:
        """The tokens in S slots, in that order: keys and values, ``(S, n_kv_heads, D)`` each.

        Raises:
            ValueError: a slot that is negative or past the last one.
        """
        ...


class BacksCaches(KVPool, Protocol):
    """A pool that makes the caches of requests whose prefix lies in it."""

    def backed_cache(self, layer: int, slots: mx.array | Sequence[int], prefix_len: int, /) -> Any:
        """An attention cache at offset ``prefix_len``, whose tokens are in the first slots.

        Raises:
            ValueError: fewer slots than ``prefix_len``.
        """
        ...


RUNNER = "sglang: MLXModelRunner (writes finished tokens by slot, gathers prefixes by slot)"
PREFILL = "sglang: MLXModelRunner (prefill after a prefix hit: PoolBackedAttentionKVCache)"

CONTRACT = REGISTRY.register(
    "pool",
    "Pools",
    "Shared storage by slot, and a cache whose prefix lies in it.",
    (
        Clause(
            "POOL-1",
            Level.MUST,
            "give by get_kv the rows that set_kv wrote to these slots of this layer last, exactly "
            "and in the order of the slots, and leave all other slots and layers untouched.",
            "A request attends to the tokens of another one.",
            (RUNNER,),
            who="A pool",
        ),
        Clause(
            "POOL-2",
            Level.MUST,
            "refuse slots that are negative or past the last one, and slot 0 for tokens, before "
            "anything changes.",
            "-1 means no write to one kernel and the last slot to an indexing; slot 0 is what a "
            "row of the slot table holds before it is filled.",
            (RUNNER, "sglang: fused RoPE and scatter kernel (-1 = no write)"),
            ("sgl-project/sglang#30093",),
            who="A pool",
        ),
        Clause(
            "POOL-3",
            Level.MUST,
            "be indistinguishable from a cache that was fed its prefix itself, for every length "
            "of the prefix and any number of updates; one that serves a single update refuses the "
            "second.",
            "The second chunk of a prefill replaces the first, and attention runs over fewer keys.",
            (PREFILL,),
            who="A pool-backed cache",
        ),
        Clause(
            "POOL-4",
            Level.MUST,
            "neither write its pool nor see what is written there after its first update.",
            "A slot is freed and filled by another request while this one goes on.",
            (PREFILL, RUNNER),
            who="A pool-backed cache",
        ),
        Clause(
            "POOL-5",
            Level.MUST,
            "return the dtype that was appended, whatever the pool's is, or refuse it; and refuse "
            "a prefix that is longer than its slots.",
            "A hit computes at another precision than a miss, or attends to a shorter prefix.",
            (PREFILL,),
            ("sgl-project/sglang#30097",),
            who="A pool-backed cache",
        ),
    ),
)
