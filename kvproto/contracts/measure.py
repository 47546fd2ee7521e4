"""``size``, ``empty`` and ``nbytes``: how much a cache holds."""

from __future__ import annotations

from typing import Protocol

from kvproto.clause import REGISTRY, Clause, Level


class Measured(Protocol):
    """A cache that tells how much it holds."""

    def size(self) -> int:
        """Tokens that it serves: offset for full caches, at most W for windows."""
        ...

    def empty(self) -> bool:
        """Whether nothing was ever stored."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        ...


CONTRACT = REGISTRY.register(
    "measure",
    "Measure",
    "`size()`, `empty()` and `nbytes` tell the truth in every state, and never raise.",
    (
        Clause(
            "MEAS-1",
            Level.MUST,
            "answer size() with min(offset, W) for windows, offset for full caches, the retained "
            "count for chunked or lossy ones, columns for batches - or not offer it: never a "
            "silent 0.",
            "merge reads size() rows; a filled cache of size 0 is merged as empty.",
            ("mlx-lm: BatchKVCache.merge (c.size() of every member)", "omlx: SizedArraysCache"),
            ("ml-explore/mlx-lm#941", "ml-explore/mlx-lm#1322"),
        ),
        Clause(
            "MEAS-2",
            Level.MUST,
            "answer empty() with True when new and False once anything was stored; after "
            "everything was trimmed either is legal.",
            "Members of a merge are skipped, or read where there is nothing.",
            ("mlx-lm: BatchRotatingKVCache.merge", "mlx-vlm: prefix cache"),
            ("ml-explore/mlx-lm#1261",),
        ),
        Clause(
            "MEAS-3",
            Level.MUST,
            "answer nbytes in every state with an int: 0 when nothing is held, at least the bytes "
            "of the retained tokens, at most those of the arrays it holds.",
            "The prompt store sums it to decide what to evict; one layer that raises takes the "
            "server down.",
            ("mlx-lm: LRUPromptCache.insert_cache", "mlx-lm: BatchGenerator.prompt_cache_nbytes"),
            (
                "ml-explore/mlx-lm#918",
                "ml-explore/mlx-lm#1165",
                "rajveer43/VeloxQuant-MLX#83",
                "rajveer43/VeloxQuant-MLX#27",
            ),
        ),
    ),
)
