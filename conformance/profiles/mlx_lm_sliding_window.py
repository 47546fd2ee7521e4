"""mlx-lm's models with sliding-window layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Consumer, Need

if TYPE_CHECKING:
    pass


LAYERS = "models: gemma3_text, gpt_oss, olmo3, cohere2 (create_attention_mask(window_size=))"

CONSUMER = Consumer(
    name="mlx-lm:sliding-window",
    about="Layers that attend to the last tokens only ask for a mask with window_size, of whatever "
    "cache stands there, for one token too.",
    kinds=("attention",),
    needs=(
        *generate.NEEDS,
        Need(("MASK-6",), LAYERS, "passes window_size for single tokens too"),
        Need(("MASK-12",), LAYERS, "falls back to masks without the window"),
        Need(("WIN-1", "WIN-2", "WIN-3"), LAYERS, "attends to the window of each query"),
    ),
    members=generate.MEMBERS,
    asks=generate.single,
    issues=("ml-explore/mlx-lm#487", "ml-explore/mlx-lm#843"),
)
