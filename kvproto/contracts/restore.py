"""Restoring a cache from its state, in either dialect.

mlx-lm 0.32 puts everything into ``state`` and has ``from_state(state)``; earlier mlx-lm and
mlx-vlm keep scalars in ``meta_state`` and have ``from_state(state, meta_state)``. The contract
knows neither: state goes out and comes in through the class's own surface.
"""

from __future__ import annotations

from typing import Any, Protocol

from typing_extensions import Self

from kvproto.clause import REGISTRY, Clause, Level


class Restorable(Protocol):
    """A live cache whose content can be replaced by a state."""

    @property
    def state(self) -> Any: ...

    @state.setter
    def state(self, state: Any, /) -> None: ...


class FromState(Protocol):
    """A class that makes a cache from a state (mlx-lm 0.32)."""

    @classmethod
    def from_state(cls, state: Any, /) -> Self: ...


class FromStateAndMeta(Protocol):
    """A class of the older dialect, with scalars in ``meta_state`` (mlx-lm to 0.31, mlx-vlm)."""

    @property
    def meta_state(self) -> Any: ...

    @meta_state.setter
    def meta_state(self, meta_state: Any, /) -> None: ...

    @classmethod
    def from_state(cls, state: Any, meta_state: Any, /) -> Self: ...


LOAD = "mlx-lm: load_prompt_cache (from_state on what was saved)"
SNAPSHOT = "sglang: auxiliary_state (assigns state to an existing object)"

CONTRACT = REGISTRY.register(
    "restore",
    "Restore",
    "A cache restored from a state goes on where the original stood.",
    (
        Clause(
            "REST-1",
            Level.MUST,
            "give, from its state, a cache that is indistinguishable from it under every later "
            "operation.",
            "A loaded prompt continues with other text than the one that was saved.",
            (LOAD, "vllm-mlx: scheduler (from_state per layer)", SNAPSHOT),
            (
                "ml-explore/mlx-lm#1250",
                "ml-explore/mlx-lm#1619",
                "ml-explore/mlx-swift-lm#155",
                "ml-explore/mlx-examples#977",
            ),
        ),
        Clause(
            "REST-2",
            Level.MUST,
            "be usable after from_state in every method that it offers: whatever __init__ sets "
            "up, restoring sets up too.",
            "from_state bypasses __init__; the attribute that is missing is met steps later.",
            (LOAD,),
            ("ml-explore/mlx-lm#886", "ml-explore/mlx-lm#807", "Blaizzy/mlx-vlm#1929"),
        ),
        Clause(
            "REST-3",
            Level.MUST,
            "round-trip when it is empty.",
            "A layer that the model has not used yet is saved with the others.",
            (LOAD,),
            ("ml-explore/mlx-lm#1430",),
        ),
        Clause(
            "REST-4",
            Level.MUST,
            "come back with the same class and an equal state: ints stay int, bools bool, "
            "dtypes, counts and child classes stay as they were.",
            "A flag that comes back as the string 'False' is true.",
            (LOAD,),
            ("ml-explore/mlx-lm#1366", "jundot/omlx#2536", "waybarrios/vllm-mlx#605"),
        ),
        Clause(
            "REST-5",
            Level.MUST,
            "survive its state being flattened, written to a safetensors file, read back and "
            "unflattened (tuples may come back as lists).",
            "That is how every prompt cache is stored.",
            ("mlx-lm: save_prompt_cache, load_prompt_cache",),
            ("ml-explore/mlx-lm#80", "jjang-ai/vmlx#17"),
        ),
        Clause(
            "REST-6",
            Level.SHOULD,
            "restore independently: two caches restored from one state, and their source, do not "
            "affect each other.",
            "A stored prefix is restored for two requests, and each writes into the other's rows.",
        ),
        Clause(
            "REST-7",
            Level.SHOULD,
            "carry pending padding through its state, or refuse to be read between prepare and "
            "finalize.",
            "The padding is rolled out of the rows at finalize, or never.",
        ),
        Clause(
            "REST-8",
            Level.MUST,
            "replace everything when state is assigned to a live object.",
            "Rows, positions or flags of the earlier request stay behind.",
            (SNAPSHOT, "vllm-mlx: MTP reject (cache[i].state = snapshot)"),
            ("vllm-project/vllm-metal#144",),
        ),
    ),
)
