"""mlx-vlm's generation: image and text prompts through the same loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Consumer, Need

if TYPE_CHECKING:
    pass


AR = "generate/ar.py: generate_step"

CONSUMER = Consumer(
    name="mlx-vlm:generate",
    about="The loop of mlx-lm with mlx-vlm's own cache module; several models read make_mask and "
    "offset of any cache that they are given.",
    kinds=("attention", "recurrent"),
    needs=(
        *generate.NEEDS,
        Need(("POS-4",), "models: minimax_m3_vl", "uses an offset that it read earlier"),
    ),
    members=generate.MEMBERS,
    asks=generate.single,
    issues=("Blaizzy/mlx-vlm#1870",),
)
