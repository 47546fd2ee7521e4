"""mlx-lm's hybrid models: recurrent and attention layers in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Consumer, Need

if TYPE_CHECKING:
    pass


RECURRENT = "models: qwen3_next, mamba2, falcon_h1, nemotron_h (recurrent layers)"

CONSUMER = Consumer(
    name="mlx-lm:hybrid",
    about="One list holds slots for recurrent layers and keys and values for attention layers.",
    kinds=("attention", "recurrent"),
    needs=(
        *generate.NEEDS,
        Need(("REC-1", "REC-3", "REC-7"), RECURRENT, "one list holds caches of several kinds"),
    ),
    members=generate.MEMBERS,
    asks=generate.single,
    issues=("ml-explore/mlx-lm#1185",),
)
