"""The decode path: write one token, read back a window, reuse the buffers.

An engine that decodes several requests at once keeps a cache for each of them and layer. In one
step it writes a token to every cache of a layer, reads all of them back, pads them at the right to
one length, and attends with a mask that hides the padding. That step is tried with the caches
under test; and where a layout (see there) makes such steps, those are tried with known caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx

KV_co = TypeVar("KV_co", covariant=True)


class Decodes(Protocol[KV_co]):
    """A cache that an engine drives token by token, outside the model's own attention."""

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        """Append one token, ``(B, n_kv_heads, 1, D)``, without reading anything back."""
        ...

    def get_kv(self, window: int | None = ..., /) -> tuple[KV_co, KV_co]:
        """The last ``min(offset, window)`` tokens in temporal order; all retained without one."""
        ...

    def reset(self) -> None:
        """Begin anew; buffers may be kept."""
        ...


class DecodesBatch(Protocol):
    """One decode step over the caches of B requests, which may differ in length."""

    @property
    def offsets(self) -> mx.array:
        """The position of each request's new token, ``(B,)``, for RoPE; the same for all layers."""
        ...

    def attend(
        self, layer: int, queries: mx.array, keys: mx.array, values: mx.array, /, *, scale: float
    ) -> mx.array:
        """Write a token of each request, ``(B, n_kv_heads, 1, D)``, and attend to each one's own.

        Returns:
            ``(B, n_heads, 1, Dv)``.
        """
        ...


class MakesDecodeSteps(Protocol):
    """A layout that makes the decode steps of its model."""

    def batched_decode(self, caches: Sequence[Sequence[Any]], /) -> DecodesBatch:
        """A step over requests, each with one entry for each layer (None for auxiliary ones).

        Where it writes to a pool too, it takes ``pool`` and ``slots`` (one for each request).
        """
        ...


WRAPPER = "sglang: MLXAttentionWrapper (write_token, then get_kv(window), for every request)"
POOL = "sglang: _acquire_cache (recycled caches are reset)"

CONTRACT = REGISTRY.register(
    "decode",
    "Decode path",
    "`write_token` and `get_kv` split an update into its halves; `reset` begins anew.",
    (
        Clause(
            "DEC-1",
            Level.MUST,
            "append one token by write_token exactly as an update of one token does, on a new "
            "cache too, and across growth.",
            "The token at the capacity boundary is lost, or written past the buffer.",
            (WRAPPER,),
            ("sgl-project/sglang#29271",),
        ),
        Clause(
            "DEC-2",
            Level.MUST,
            "give by get_kv(w) the last min(offset, w) retained tokens in temporal order, and by "
            "get_kv() all retained ones.",
            "Right-padded batches of requests are attended with masks that count from the end.",
            (WRAPPER,),
        ),
        Clause(
            "DEC-3",
            Level.MUST,
            "be, after reset(), indistinguishable from a new cache; another dtype or shape is "
            "honoured or refused, never cast or broadcast.",
            "Rows, positions or the dtype of the earlier request stay behind.",
            (POOL,),
        ),
        Clause(
            "DEC-4",
            Level.SHOULD,
            "reject a capacity below 1, and grow from any capacity of at least 1.",
            "Doubling a capacity of 0 never ends.",
        ),
        Clause(
            "DEC-5",
            Level.MUST,
            "give each request the attention that it would get alone, at its own position: its "
            "token is written, its own tokens are read back, padded at the right, and the padding "
            "is masked.",
            "A request attends to zeros, or to tokens of another one.",
            (WRAPPER,),
            who="A decode step over the caches of several requests",
        ),
        Clause(
            "DEC-6",
            Level.SHOULD,
            "refuse get_kv of a window below 1 with ValueError.",
            "A window of 0 attends to nothing; softmax over nothing is NaN.",
        ),
    ),
)
