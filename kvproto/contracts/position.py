"""``offset``: the absolute position of the next token."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kvproto.clause import REGISTRY, Clause, Level

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class HasOffset(Protocol[T_co]):
    """A cache with a position: ``HasOffset[int]`` for one sequence, ``HasOffset[mx.array]``
    (integers, shape ``(B,)``) for a batch.

    A read-only property, so that plain attributes, properties and slots all satisfy it.
    """

    @property
    def offset(self) -> T_co:
        """Absolute position of the next token: the RoPE position of the first row appended."""
        ...


class SettableOffset(Protocol[T]):
    """A cache whose owner may move ``offset``: data-free shims, and buffers that are reused."""

    @property
    def offset(self) -> T: ...

    @offset.setter
    def offset(self, offset: T, /) -> None: ...


ROPE = "mlx-lm: models/*.py (about 100 read cache.offset for RoPE before update_and_fetch)"

CONTRACT = REGISTRY.register(
    "position",
    "Position",
    "`offset` tells where the next token stands, whatever the cache still holds.",
    (
        Clause(
            "POS-1",
            Level.MUST,
            "start at offset 0, or at the start it was constructed with; a row with p columns "
            "of left padding starts at -p, so that its first real token is at position 0.",
            "RoPE rotates the whole prompt by the wrong angle; attention then compares positions "
            "that the model never saw in training.",
            (ROPE,),
        ),
        Clause(
            "POS-2",
            Level.MUST,
            "raise offset by exactly S when S tokens are appended, whatever is evicted, "
            "compressed or dropped from the front.",
            "offset is the position that RoPE reads before the update; one that counts retained "
            "rows repeats positions as soon as anything is evicted.",
            (ROPE, "sglang: BatchedDecodeContext.from_decode (sequence lengths from offset)"),
            (
                "rajveer43/VeloxQuant-MLX#171",
                "rajveer43/VeloxQuant-MLX#195",
                "ml-explore/mlx-swift-lm#487",
                "nicedreamzapp/claude-code-local#46",
            ),
        ),
        Clause(
            "POS-3",
            Level.MUST,
            "move offset when the method is called, not when arrays are evaluated.",
            "Generation builds step t+1 before step t is evaluated; a late offset gives two "
            "tokens the same position.",
            (
                "mlx-lm: generate_step (async_eval, one step ahead)",
                "sglang: chained decode (offset is bumped while the graph is built)",
            ),
        ),
        Clause(
            "POS-4",
            Level.MUST,
            "leave an offset that was read earlier as it was: an array that was handed out is "
            "never changed in place.",
            "Shared-KV layers read offset once, let the owner advance, and use the old value; "
            "`self.offset += n` on an mx.array changes it under them.",
            (
                "mlx-lm: gemma3n, gemma4_text (one offset for all layers of a pass)",
                "mlx-vlm: minimax_m3_vl (selects before the cache advances)",
            ),
            (
                "ml-explore/mlx-lm#1097",
                "ml-explore/mlx-lm#1699",
                "ml-explore/mlx-lm#1806",
            ),
        ),
        Clause(
            "POS-5",
            Level.MUST,
            "keep one type of offset for the life of the object: int for one sequence, an "
            "integer mx.array of shape (B,) for a batch; a 0-d array only where the class "
            "declares that it is made for captured graphs.",
            "Consumers choose integer or per-row arithmetic once; a type that changes fails in "
            "the middle of a generation.",
            (
                "mlx-lm: llama4, gpt_bigcode (arange over an int offset)",
                "mlx-vlm: qwen2_5_vl and others (per-row positions from an array)",
            ),
            ("Blaizzy/mlx-vlm#1109", "ml-explore/mlx-lm#707"),
        ),
        Clause(
            "POS-6",
            Level.MUST,
            "never show an offset below 0 (a row's own left padding aside) or above the number "
            "of tokens logged, trims included.",
            "A negative or inflated offset makes the next write land outside the valid rows.",
            (
                "mlx-lm: trim_prompt_cache, speculative_generate_step (trim, then go on)",
                "mlx-lm: BatchGenerator (filter, then decode)",
            ),
            ("ml-explore/mlx-lm#1736", "ml-explore/mlx-lm#1776", "ml-explore/mlx-lm#1868"),
        ),
        Clause(
            "POS-7",
            Level.SHOULD,
            "let its owner lower offset where it declares that buffers are reused; lowering it "
            "is then the same as trimming, and rows above it are never shown again.",
            "Engines recycle buffers by writing offset, and rewind one token on a full prefix hit.",
            (
                "sglang: MLXModelRunner.prefill_start (offset - 1 on a full prefix hit)",
                "exo: trim (sets offset to the restored position)",
            ),
        ),
    ),
)
