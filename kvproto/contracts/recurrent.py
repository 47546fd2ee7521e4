"""Recurrent caches: slots of state instead of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx


class HasSlots(Protocol):
    """A cache whose layer reads and replaces slots of state."""

    def __getitem__(self, slot: int, /) -> Any:
        """The state of a slot; None before first use; IndexError past the last."""
        ...

    def __setitem__(self, slot: int, value: Any, /) -> None: ...


class CountsPadding(Protocol):
    """A cache that knows which columns still to come are padding of which row."""

    @property
    def lengths(self) -> mx.array | None:
        """Tokens left of each right-padded row, ``(B,)``, or None."""
        ...

    @property
    def left_padding(self) -> mx.array | None:
        """Padding left of each row, ``(B,)``, or None."""
        ...

    def advance(self, n: int, /) -> None:
        """n tokens were consumed: lower lengths and left_padding."""
        ...


class MakesRecurrentMask(Protocol):
    """A cache that makes the mask of a recurrent layer: which positions hold tokens."""

    def make_mask(self, N: int, /) -> mx.array | None:
        """Valid positions of the next N tokens, boolean ``(B, N)``, or None if all are."""
        ...


LAYERS = "mlx-lm: mamba2, nemotron_h, qwen3_next, kimi_linear, falcon_h1 (cache[i], lengths)"

CONTRACT = REGISTRY.register(
    "recurrent",
    "Recurrent caches",
    "Slots start as None, padding is counted down by `advance`, nothing can be rewound.",
    (
        Clause(
            "REC-1",
            Level.MUST,
            "start every slot as None, raise IndexError past the last, and keep the number of "
            "slots.",
            "Models unpack it (`conv, ssm = cache`), which iterates until IndexError.",
            (LAYERS,),
            ("jundot/omlx#2536",),
        ),
        Clause(
            "REC-2",
            Level.MUST,
            "have lengths and left_padding, None or arrays of shape (B,), that advance(n) lowers "
            "by n without touching arrays that were read before.",
            "The attributes are read without a check; one that counts wrong masks real tokens.",
            (LAYERS,),
            ("ml-explore/mlx-lm#1908", "ml-explore/mlx-lm#1024"),
        ),
        Clause(
            "REC-3",
            Level.MUST,
            "make by make_mask(N) the valid positions, boolean of shape (B, N), left padding and "
            "lengths combined; or None when all are valid.",
            "Padding enters the recurrent state and never leaves it.",
            ("mlx-lm: models/base.create_ssm_mask",),
        ),
        Clause(
            "REC-4",
            Level.MUST,
            "not be trimmable, unless it can really rewind.",
            "Rejected drafts stay in the state.",
            ("mlx-lm: speculative_generate_step, LRUPromptCache",),
            ("ml-explore/mlx-lm#846", "ml-explore/mlx-lm#1186"),
        ),
        Clause(
            "REC-5",
            Level.SHOULD,
            "hand out a state whose slots do not change when a slot is assigned later.",
            "A stored state follows the live one.",
            (),
            ("waybarrios/vllm-mlx#575", "waybarrios/vllm-mlx#641"),
        ),
        Clause(
            "REC-6",
            Level.MUST,
            "hold no graph that grows with the number of advances, once its slots are evaluated.",
            "A lazy counter keeps every earlier step alive.",
            ("mlx-lm: generate_step (slots are evaluated every step)",),
            ("ml-explore/mlx-lm#1185", "ml-explore/mlx-lm#1632", "Blaizzy/mlx-vlm#1972"),
        ),
        Clause(
            "REC-7",
            Level.MUST,
            "answer nbytes and empty() with slots that are unset.",
            "The prompt store sums nbytes of layers that were never used.",
            ("mlx-lm: LRUPromptCache.insert_cache",),
            ("ml-explore/mlx-lm#918", "ml-explore/mlx-lm#1261"),
        ),
    ),
)
