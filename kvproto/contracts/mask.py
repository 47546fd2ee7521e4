"""``make_mask``: which of the keys that the next update returns may be attended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, Union

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx

AttentionMask: TypeAlias = Union[Literal["causal"], "mx.array", None]
"""None (everything visible), ``"causal"`` (aligned lower-right), or an array: boolean with
True = may attend, or additive with 0 / -inf; broadcastable to ``(B, n_heads, N, L)``."""


class MakesAttentionMask(Protocol):
    """A cache that makes the attention mask of its layer kind."""

    def make_mask(
        self, N: int, /, *, return_array: bool = ..., window_size: int | None = ...
    ) -> AttentionMask:
        """Mask for N new queries, asked *before* their keys are appended.

        Args:
            N: number of new tokens, at least 1.
            return_array: ask for an array even where ``"causal"`` would do.
            window_size: sliding window of the layer in tokens, the query's own included.
        """
        ...


DISPATCH = "mlx-lm: models/base.create_attention_mask (make_mask(N, return_array=, window_size=))"
SDPA = "mlx-lm: models/base.scaled_dot_product_attention (mask against the keys just returned)"
WINDOWED = "mlx-lm: gemma3_text, gpt_oss, olmo3, cohere2 (window_size for sliding layers)"

CONTRACT = REGISTRY.register(
    "mask",
    "Mask",
    "`make_mask(N, return_array=..., window_size=...)` is asked once per kind of layer, before "
    "the update, and must fit what that update returns.",
    (
        Clause(
            "MASK-1",
            Level.MUST,
            "answer make_mask(N, return_array=..., window_size=...), N positional and both "
            "options by keyword, on an empty cache too.",
            "It is the one form that every consumer uses; a class that rejects it cannot run.",
            (DISPATCH,),
        ),
        Clause(
            "MASK-2",
            Level.MUST,
            "make masks that broadcast to (B, n_heads, N, L) and whose last axis is L, the "
            "number of keys that the following append of N tokens returns; axis -2, where there "
            "is one, is N or 1; masks that differ by row are (B, 1, N, L).",
            "Attention either raises on the shape or broadcasts a mask over the wrong keys.",
            (SDPA,),
            (
                "ml-explore/mlx-lm#487",
                "unslothai/unsloth-zoo#898",
                "lablup/mlxcel#421",
                "rajveer43/VeloxQuant-MLX#390",
            ),
        ),
        Clause(
            "MASK-3",
            Level.MUST,
            "make array masks that let each query see exactly the visible retained tokens: its "
            "own past under the declared visibility, itself included, never the future, never "
            "padding.",
            "The model attends to tokens that it must not see, or misses ones that it must; "
            "nothing raises and the text degrades.",
            (SDPA,),
            (
                "rajveer43/VeloxQuant-MLX#370",
                "jundot/omlx#1547",
            ),
        ),
        Clause(
            "MASK-4",
            Level.MUST,
            'return "causal" only if causal attention aligned at the lower right is exact, and '
            "None only if every query sees every returned key.",
            "Both are instructions to a fused kernel, which believes them.",
            (SDPA, "mx.fast.scaled_dot_product_attention (mask='causal' is lower-right)"),
            ("ml-explore/mlx-lm#121", "rajveer43/VeloxQuant-MLX#370"),
        ),
        Clause(
            "MASK-5",
            Level.MUST,
            "return an array when return_array=True and N > 1; None stays legal for N == 1.",
            "Models that edit the mask (mx.where, take_along_axis) fail on a string.",
            ("mlx-lm: gemma2, phi3small, deepseek_v3, kimi_linear (return_array=True)",),
            ("sgl-project/sglang#30050",),
        ),
        Clause(
            "MASK-6",
            Level.MUST,
            "honour window_size for N == 1 too.",
            "Prefill uses the window and decode does not: the model drifts from the first "
            "generated token on, only for prompts longer than the window.",
            (WINDOWED,),
            (
                "ml-explore/mlx-lm#487",
                "ml-explore/mlx-lm#843",
                "sgl-project/sglang#30050",
            ),
        ),
        Clause(
            "MASK-7",
            Level.MUST,
            "change nothing by making a mask, and give equal masks to equal calls.",
            "The mask of one cache serves all layers of its kind; a mask that moves the cache "
            "desynchronises that layer from the others.",
            (DISPATCH,),
        ),
        Clause(
            "MASK-8",
            Level.MUST,
            "make masks that are boolean (True = may attend) or additive floating (0 where "
            "visible, -inf or the dtype's minimum where hidden).",
            "An integer or 0/1 float mask is added to the scores and hides nothing.",
            (SDPA,),
        ),
        Clause(
            "MASK-9",
            Level.SHOULD,
            'return None or "causal" when nothing else is hidden and no array was asked for.',
            "A materialised mask leaves the fused causal path and costs N x L of memory.",
            ("mx.fast.scaled_dot_product_attention (fused causal path)",),
        ),
        Clause(
            "MASK-10",
            Level.SHOULD,
            "raise when the asked window is wider than what it still holds can serve, instead "
            "of shortening the context silently.",
            "A cache with a smaller window than its layer answers as if nothing was missing.",
        ),
        Clause(
            "MASK-11",
            Level.SHOULD,
            "reject N < 1 and window_size < 1 with ValueError.",
            "window_size=0 hides everything, and softmax over nothing is NaN.",
        ),
        Clause(
            "MASK-12",
            Level.MUST,
            "have make_mask, unless it has full visibility and no padding, or is of a kind whose "
            "model builds the mask itself (chunk).",
            "Consumers fall back silently: to None for one query, to a causal mask that knows "
            "neither window nor padding for more.",
            (DISPATCH,),
        ),
        Clause(
            "MASK-13",
            Level.SHOULD,
            "answer the bare make_mask(N) too.",
            "Callers outside mlx-lm's helper use it; mlx-lm's own KVCache raises TypeError.",
        ),
    ),
)
