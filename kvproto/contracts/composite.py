"""Composite caches: one layer's cache made of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kvproto.clause import REGISTRY, Clause, Level


class HasChildren(Protocol):
    """A cache of caches: a layer takes each by its index."""

    @property
    def caches(self) -> Sequence[Any]: ...

    def __getitem__(self, index: int, /) -> Any: ...


LAYERS = "mlx-lm: baichuan_m1, falcon_h1, longcat_flash, deepseek_v32 (cache[0], cache[1])"

CONTRACT = REGISTRY.register(
    "composite",
    "Composite caches",
    "A cache of caches forwards what all children do, and claims nothing of its own.",
    (
        Clause(
            "COMP-1",
            Level.MUST,
            "be trimmable only if all children are, and trim all by the same count or none.",
            "Children end at different positions.",
            ("mlx-lm: trim_prompt_cache, speculative_generate_step",),
            ("ml-explore/mlx-lm#434",),
        ),
        Clause(
            "COMP-2",
            Level.MUST,
            "forward state, nbytes, size and empty to every child, keeping child classes when it "
            "is restored.",
            "A child that is left out is not evaluated, saved or counted.",
            ("mlx-lm: generate_step, save_prompt_cache, LRUPromptCache",),
            ("ml-explore/mlx-lm#886", "ml-explore/mlx-lm#510", "ml-explore/mlx-lm#769"),
        ),
        Clause(
            "COMP-3",
            Level.MUST,
            "not offer offset, make_mask, update_and_fetch or bits itself, unless they mean "
            "something.",
            "Attention is given the container and dispatches on its members.",
            ("mlx-lm: models/base.scaled_dot_product_attention (hasattr(cache, 'bits'))", LAYERS),
        ),
        Clause(
            "COMP-4",
            Level.SHOULD,
            "work without children: trim 0, empty() True, size() 0.",
            "Layers without state are given an empty container.",
        ),
    ),
)
