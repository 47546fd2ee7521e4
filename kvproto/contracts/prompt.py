"""Prompts: the list of layer caches, and what engines do with it as a whole.

A prompt is a list with one cache for each layer, all fed the same tokens. What is under test here
is not a cache but what handles the list: an object with any of the methods below. The caches that
it is tried with are a claim (``caches``, a list of targets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kvproto.clause import REGISTRY, Clause, Level


class TrimsPrompts(Protocol):
    """Trims all caches of a prompt."""

    def trim_prompt(self, caches: list[Any], n: int, /) -> int:
        """Remove the newest tokens of every cache, the same number of each; return that number."""
        ...


class SavesPrompts(Protocol):
    """Keeps prompts in files."""

    def save(self, path: str, caches: list[Any], metadata: Mapping[str, str], /) -> None: ...

    def load(self, path: str, /) -> tuple[list[Any], Mapping[str, str]]:
        """The caches that were saved, in order, and the metadata."""
        ...


class StoresPrompts(Protocol):
    """Keeps prompts by their tokens, and hands out caches for a prefix of another prompt."""

    def insert(self, tokens: Sequence[int], caches: list[Any], /) -> None:
        """Keep caches that were fed exactly these tokens."""
        ...

    def fetch(self, tokens: Sequence[int], /) -> tuple[list[Any] | None, Sequence[int]]:
        """Caches that stand at a prefix of ``tokens``, and the tokens left to feed."""
        ...


POSITION = "mlx-engine, exo: the first offset in the list is taken as the length of the prompt"
TRIM = "mlx-lm: speculative_generate_step, LRUPromptCache (trim_prompt_cache)"
FILES = "mlx-lm: save_prompt_cache, load_prompt_cache"
STORE = "mlx-lm: server (LRUPromptCache.fetch_nearest_cache)"

CONTRACT = REGISTRY.register(
    "prompt",
    "Prompts",
    "A list of layer caches is trimmed, saved, loaded and handed out as one.",
    (
        Clause(
            "PROMPT-1",
            Level.MUST,
            "leave all caches of a prompt that have an offset at the same one, by whatever is done "
            "to the list.",
            "The position of one layer is taken for that of all: the others are fed tokens at "
            "wrong positions, or twice.",
            (POSITION, TRIM),
            ("waybarrios/vllm-mlx#678", "ml-explore/mlx-lm#1494"),
        ),
        Clause(
            "PROMPT-2",
            Level.MUST,
            "trim every cache of a prompt by the same count or none, and return that count.",
            "A layer keeps tokens that were rejected, and attends to them from then on.",
            (TRIM,),
            ("ml-explore/mlx-lm#1494", "ml-explore/mlx-lm#1502"),
        ),
        Clause(
            "PROMPT-3",
            Level.MUST,
            "save and load any mix of classes, third-party and data-free ones included, in order, "
            "with metadata intact.",
            "A prompt cannot be loaded again, or its layers are given to the wrong ones.",
            (FILES,),
            ("ml-explore/mlx-lm#80",),
        ),
        Clause(
            "PROMPT-4",
            Level.MUST,
            "hand out, for a prefix p, caches that are exactly in the state after p, and are "
            "independent of what is stored.",
            "A request goes on from tokens that it does not have.",
            (STORE,),
            ("ml-explore/mlx-lm#1494", "ml-explore/mlx-lm#1503", "ml-explore/mlx-lm#1186"),
        ),
    ),
)
