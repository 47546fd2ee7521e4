"""Sliding windows, attention sinks, and chunks whose front is dropped."""

from __future__ import annotations

from typing import Protocol

from kvproto.clause import REGISTRY, Clause, Level


class FrontTrimming(Protocol):
    """A cache that drops what lies before the current attention chunk (Llama 4)."""

    @property
    def start_position(self) -> int:
        """Position of the first row that it still holds."""
        ...

    def maybe_trim_front(self) -> None:
        """Drop rows before the current chunk; called first in every pass."""
        ...


LAYERS = "mlx-lm: gemma3_text, gpt_oss, olmo3 (sliding-window layers)"

CONTRACT = REGISTRY.register(
    "window",
    "Windows and sinks",
    "A windowed cache shows each query its window, keeps offset absolute, and holds O(W) rows.",
    (
        Clause(
            "WIN-1",
            Level.MUST,
            "show each of S new queries its last W tokens, and stay bounded after any history "
            "(W+S-1 rows after an append of S are needed, and more are legal while a mask hides "
            "them).",
            "A window that is trimmed to W before a chunk is attended starves its first queries; "
            "one that is never trimmed grows without end.",
            (LAYERS,),
            ("ml-explore/mlx-lm#738", "ml-explore/mlx-lm#1052"),
        ),
        Clause(
            "WIN-2",
            Level.MUST,
            "keep offset absolute while rows are dropped.",
            "RoPE positions stand still once the window is full.",
            (LAYERS, "sglang: BatchedDecodeContext (sequence lengths)"),
            ("rajveer43/VeloxQuant-MLX#171",),
        ),
        Clause(
            "WIN-3",
            Level.MUST,
            "show attention sinks to every query, in one- and multi-token steps.",
            "Attention that loses its sinks degrades at once (StreamingLLM, arXiv:2309.17453).",
            ("mlx-lm: make_prompt_cache (RotatingKVCache with keep=4 for max_kv_size)",),
            ("lmstudio-ai/mlx-engine#179",),
        ),
        Clause(
            "WIN-4",
            Level.MUST,
            "refuse a full-context mask once anything was, or by this append will be, dropped; "
            "or return one that is right for its window. It never promises a dropped token.",
            "A mask wider than the keys raises in attention, or shifts over them.",
            ("mlx-lm: models/base.create_attention_mask", "sglang: WindowedAttentionKVCache"),
        ),
        Clause(
            "WIN-5",
            Level.SHOULD,
            "reject a window below 1, negative sinks, and sinks that leave no room in the window, "
            "at construction.",
            "A window of 0 hides everything, or stores nothing, much later.",
        ),
        Clause(
            "WIN-6",
            Level.SHOULD,
            "hold at most 2W + max(S, W) rows, where S is the largest append.",
            "The memory that a window is there to save is not saved.",
        ),
        Clause(
            "WIN-7",
            Level.SHOULD,
            "not change arrays that it handed out when it drops, moves or overwrites rows.",
            "A step that is still lazy reads the rows of a later one.",
        ),
        Clause(
            "WIN-8",
            Level.MUST,
            "hold at most C rows after maybe_trim_front(), all of them at positions from "
            "start_position on, and return offset + S - start_position rows from the next append "
            "of S.",
            "The model builds its mask from start_position and offset.",
            ("mlx-lm: llama4 (maybe_trim_front, start_position, offset)",),
        ),
    ),
)
