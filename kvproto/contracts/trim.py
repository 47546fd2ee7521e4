"""``is_trimmable`` and ``trim``: take back the newest tokens."""

from __future__ import annotations

from typing import Protocol

from kvproto.clause import REGISTRY, Clause, Level


class Trimmable(Protocol):
    """A cache whose newest tokens can be taken back."""

    def is_trimmable(self) -> bool:
        """Whether trim would remove what it is asked to, now; the answer may change."""
        ...

    def trim(self, n: int, /) -> int:
        """Remove the ``n`` newest tokens and return how many were removed."""
        ...


SPECULATIVE = "mlx-lm: speculative_generate_step (rejected drafts are trimmed)"
STORE = "mlx-lm: LRUPromptCache.fetch_nearest_cache (a longer entry is trimmed to the prefix)"
HELPER = "mlx-lm: trim_prompt_cache (uses the count of layer 0 for all layers)"

CONTRACT = REGISTRY.register(
    "trim",
    "Trim",
    "`trim(n)` removes exactly the newest tokens, or nothing.",
    (
        Clause(
            "TRIM-1",
            Level.MUST,
            "remove exactly the m newest tokens and return m, 0 <= m <= n; afterwards it is "
            "indistinguishable from a cache that never saw them.",
            "Rejected drafts stay in the context, or live tokens vanish from it.",
            (SPECULATIVE, STORE),
            (
                "ml-explore/mlx-lm#1494",
                "ml-explore/mlx-lm#1502",
                "rajveer43/VeloxQuant-MLX#369",
            ),
        ),
        Clause(
            "TRIM-2",
            Level.MUST,
            "remove min(n, offset) while is_trimmable() is True; or, if its front was dropped and "
            "it cannot go back that far, what it can, returning the count it really removed.",
            "is_trimmable is asked once, before the prompt is fed; the count is then relied on.",
            (SPECULATIVE, HELPER),
            ("ml-explore/mlx-lm#999", "ml-explore/mlx-lm#1437"),
        ),
        Clause(
            "TRIM-3",
            Level.MUST,
            "remove nothing and change nothing when it cannot trim (a wrapped window, recurrent "
            "state), and return 0 or raise.",
            "A ring that is trimmed after it wrapped attends to stale rows in the middle of its "
            "timeline.",
            (SPECULATIVE, "exo: trim"),
            (
                "ml-explore/mlx-lm#1512",
                "ml-explore/mlx-lm#1776",
                "ml-explore/mlx-swift-lm#584",
                "ollama/ollama#14912",
                "exo-explore/exo#2158",
            ),
        ),
        Clause(
            "TRIM-4",
            Level.MUST,
            "treat n > offset as n == offset, and n == 0 as no call at all.",
            "speculative_generate_step trims 0 after a fully accepted draft.",
            (SPECULATIVE, HELPER),
        ),
        Clause(
            "TRIM-5",
            Level.MUST,
            "have trim whenever is_trimmable() can be True.",
            "The consumer that asked first gets an AttributeError.",
            (HELPER,),
            ("ml-explore/mlx-lm#1081", "waybarrios/vllm-mlx#145"),
        ),
        Clause(
            "TRIM-6",
            Level.MUST,
            "trim columns where it is a padded batch, so that every row is as if it had never "
            "been fed them; a row may be back inside its padding.",
            "Rows of a batch lose different tokens.",
            ("mlx-vlm: speculative rollback over a batch", "mlx-lm: BatchGenerator"),
        ),
        Clause(
            "TRIM-7",
            Level.SHOULD,
            "refuse n < 0 with ValueError, or do nothing.",
            "A negative count moves offset past the rows that were written.",
            (),
            ("ml-explore/mlx-lm#1868", "ml-explore/mlx-lm#1528"),
        ),
        Clause(
            "TRIM-8",
            Level.SHOULD,
            "say is_trimmable() False once its front was dropped and it cannot go back to any "
            "earlier token.",
            "A caller that trims part of the layers fully and one of them partly ends out of step.",
            (),
            ("ml-explore/mlx-lm#1494", "ml-explore/mlx-lm#1503"),
        ),
    ),
)
