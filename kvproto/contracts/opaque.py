"""Opaque caches: ``update_and_fetch`` returns handles, and the cache owns the attention.

For rows in a form that no attention kernel reads: rotated, entropy coded, kept elsewhere. The
handles go from ``update_and_fetch`` to ``attend`` and nowhere else. Position, masks, state, trim
and measures are those of any other cache; ``attend`` is what tells the kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx


class RowsHandle(Protocol):
    """What stands for retained keys, or values, of which only their cache makes sense."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(B, n_kv_heads, L, D)``: L keys, which is the last axis of the mask."""
        ...


H = TypeVar("H")


class Attends(Protocol[H]):
    """A cache that computes attention over what its ``update_and_fetch`` returned."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> tuple[H, H]: ...

    def attend(
        self, queries: mx.array, keys: H, values: H, /, *, scale: float, mask: Any = None
    ) -> mx.array:
        """Attention of new queries over the retained tokens.

        Args:
            queries: ``(B, n_heads, N, Dk)``; n_heads is a multiple of n_kv_heads.
            keys: the first handle of the last update.
            values: the second one.
            scale: factor of the scores.
            mask: what ``make_mask`` gave before the update, or any mask of the same meaning.

        Returns:
            ``(B, n_heads, N, Dv)`` in the dtype of the queries.
        """
        ...


SDPA = "mlx-lm: models/base.scaled_dot_product_attention (hasattr(cache, 'bits'))"
OWN = "mlx-vlm: models/base.scaled_dot_product_attention (asks the cache for its attention)"
LENGTH = "mlx-vlm: models/base.kv_sequence_length (keys.shape[-2], to cut the mask)"

CONTRACT = REGISTRY.register(
    "opaque",
    "Opaque caches",
    "`attend` says that update_and_fetch returns handles, over which the cache itself attends.",
    (
        Clause(
            "OPQ-1",
            Level.MUST,
            "not let a handle pass for rows: it is no array, tuple or list, attention over it "
            "raises, and there is no bits.",
            "Plain or quantised attention would run over rows in a form that it does not know, "
            "and give numbers that mean nothing.",
            (SDPA,),
            ("jundot/omlx#2381", "Blaizzy/mlx-vlm#944"),
        ),
        Clause(
            "OPQ-2",
            Level.MUST,
            "give, by attend(queries, keys, values, scale=, mask=) with the mask it made, the "
            "attention of UPD-14, grouped heads included.",
            "It is the only way to use what the cache holds.",
            (OWN,),
            ("Blaizzy/mlx-vlm#973",),
        ),
        Clause(
            "OPQ-3",
            Level.MUST,
            "return a handle for rows in any other basis than the one they came in; arrays and "
            "triples are the tokens themselves.",
            "Attention by the usual kernel runs over rotated rows, and is wrong without an error.",
            (SDPA,),
        ),
        Clause(
            "OPQ-4",
            Level.MUST,
            "have handles whose shape is (B, n_kv_heads, L, D), L being the last axis of the mask "
            "made before the update.",
            "Models that share one mask between layers cut it to the number of keys.",
            (LENGTH,),
        ),
    ),
)
