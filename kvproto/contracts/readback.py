"""Read-back: the retained keys and values without an update."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kvproto.clause import REGISTRY, Clause, Level

KV_co = TypeVar("KV_co", covariant=True)
KV = TypeVar("KV")


class ReadsBack(Protocol[KV_co]):
    """A cache that gives its rows to layers that share them."""

    def keys_and_values(self) -> tuple[KV_co, KV_co]:
        """What the last update returned: ``(B, n_kv_heads, L, Dk)`` and ``(..., L, Dv)``."""
        ...


class HasBuffers(Protocol[KV_co]):
    """A cache whose raw buffers can be read (sglang copies rows into its pool by position)."""

    @property
    def keys(self) -> KV_co: ...

    @property
    def values(self) -> KV_co: ...


class ExposesBuffers(Protocol[KV]):
    """A cache whose raw buffers can be read and replaced (pipelined models do both)."""

    @property
    def keys(self) -> KV: ...

    @keys.setter
    def keys(self, keys: KV, /) -> None: ...

    @property
    def values(self) -> KV: ...

    @values.setter
    def values(self, values: KV, /) -> None: ...


SHARED = "mlx-lm: gemma3n, afm7 (layers that reuse an earlier layer's keys and values)"

CONTRACT = REGISTRY.register(
    "read-back",
    "Read-back",
    "`keys_and_values()` gives what the last update returned; `keys` and `values` are buffers.",
    (
        Clause(
            "READ-1",
            Level.MUST,
            "give through keys_and_values() what the last update returned, less what was "
            "trimmed since, and advance nothing.",
            "Layers that share keys and values read them after their owner's update.",
            (SHARED,),
            ("ml-explore/mlx-lm#1494",),
        ),
        Clause(
            "READ-2",
            Level.MUST,
            "never expose rows past offset through keys_and_values().",
            "Rows of an earlier request leak into this one.",
            (SHARED,),
            ("waybarrios/vllm-mlx#384",),
        ),
        Clause(
            "READ-3",
            Level.SHOULD,
            "have, where keys and values are attributes, settable ones that lie on the graph that "
            "evaluating state runs.",
            "Pipelined models write cache.keys = mx.depends(cache.keys, h), so that evaluating "
            "the state performs the send.",
            ("mlx-lm: 16 models when pipelined (cache[-1].keys = mx.depends(...))",),
        ),
        Clause(
            "READ-4",
            Level.SHOULD,
            "answer keys_and_values() on an empty cache with zero rows, or with a clear error "
            "that names the class.",
            "`'NoneType' object has no attribute 'shape'` tells a caller nothing.",
        ),
    ),
)
