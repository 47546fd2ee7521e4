"""``state``, and what every object in a list of layer caches owes."""

from __future__ import annotations

from typing import Protocol

from kvproto.clause import REGISTRY, Clause, Level


class HasState(Protocol):
    """A cache whose arrays can be evaluated through ``state``.

    The tree is opaque: it round-trips through the class's own surface, and its shape is the
    class's business (mlx-lm changed it in 0.32).
    """

    @property
    def state(self) -> object:
        """A tree (tuple, list, dict) of mx.array, int, float, bool, str and None."""
        ...


PREFILL = "mlx-lm: generate_step (mx.eval([c.state for c in prompt_cache]) after every chunk)"

CONTRACT = REGISTRY.register(
    "state",
    "State",
    "`state` is what consumers evaluate after each prefill chunk; it can be read at any time.",
    (
        Clause(
            "STATE-1",
            Level.MUST,
            "have a state that can be read and passed to mx.eval at any time, when empty too.",
            "Prefill evaluates the state of every layer, unused ones included.",
            (PREFILL,),
            (
                "rajveer43/VeloxQuant-MLX#83",
                "ml-explore/mlx-lm#1430",
                "ml-explore/mlx-lm#1778",
            ),
        ),
        Clause(
            "STATE-2",
            Level.MUST,
            "hold in state every array that its next step depends on: once it is evaluated, no "
            "graph grows with the number of steps.",
            "The unevaluated graph keeps every earlier step alive: memory grows until the "
            "process dies.",
            (PREFILL,),
            (
                "ml-explore/mlx-lm#1632",
                "ml-explore/mlx-lm#1185",
                "ml-explore/mlx-lm#1332",
                "Blaizzy/mlx-vlm#1972",
            ),
        ),
        Clause(
            "STATE-3",
            Level.MUST,
            "have a state that is a tree (tuple, list, dict) of mx.array, int, float, bool, str "
            "and None.",
            "save_prompt_cache flattens it and refuses other leaves.",
            ("mlx-lm: save_prompt_cache (tree_flatten)", "sglang: auxiliary_state (walks it)"),
        ),
        Clause(
            "STATE-4",
            Level.MUST,
            "not be changed by reading state.",
            "State is read between steps by every engine.",
            (PREFILL,),
        ),
        Clause(
            "STATE-5",
            Level.MUST,
            "be always truthy: bool(cache) is True, also when it is empty.",
            "`if cache and hasattr(cache, 'make_mask')` silently drops the mask of a cache whose "
            "__len__ or __bool__ says 0.",
            (
                "mlx-lm: models/base.create_attention_mask, create_ssm_mask",
                "mlx-lm: hunyuan, qwen3_next (cache.offset if cache else 0)",
            ),
        ),
        Clause(
            "STATE-6",
            Level.SHOULD,
            "hand out a snapshot: later writes do not change a state that the caller holds. "
            "Where it aliases live buffers, the class says so and consumers copy.",
            "A stored prefix changes under the store as soon as its source goes on.",
            (),
            ("waybarrios/vllm-mlx#575", "waybarrios/vllm-mlx#641"),
        ),
    ),
)
