"""mlx-lm's models whose layers share keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.profiles import mlx_lm_generate as generate
from conformance.profiles.consumer import Consumer, Member, Need

if TYPE_CHECKING:
    pass


SHARED = "models: gemma3n, afm7 (keys_and_values of the owner's cache)"

CONSUMER = Consumer(
    name="mlx-lm:shared-kv",
    about="Layers without a cache of their own read the keys and values of an earlier layer after "
    "its update, under the mask made before the pass.",
    kinds=("attention",),
    needs=(
        *generate.NEEDS,
        Need(("READ-1", "READ-2"), SHARED, "attends to what the owner's update returned"),
        Need(("POS-4",), SHARED, "uses the offset that it read before the owner's update"),
    ),
    members=(
        *generate.MEMBERS,
        Member("keys_and_values", SHARED, "the shared layers raise AttributeError"),
    ),
    asks=generate.single,
)
