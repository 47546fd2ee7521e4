"""Data-free caches: they stand in a layer's place, answer for position and mask, and hold no data.

sglang's ``AttentionOffsetCache`` is one: the batched decode keeps its keys elsewhere, and the
object in the model's cache list only says where the next token stands.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from typing_extensions import Never

from kvproto.clause import REGISTRY, Clause, Level
from kvproto.contracts.mask import AttentionMask


class DataFreeCache(Protocol):
    """A cache that holds no data, for a layer that has positions.

    ``update_and_fetch`` is there, so that a caller in error meets a clear message. Its return type
    says that it never returns, and its parameters that no argument is right: so a type checker
    rejects the call, and rejects the cache where one that stores is asked for. A class that types
    only the result ``Never`` satisfies this protocol too, but also, for ``Never`` is a subtype of
    every type, :class:`~kvproto.contracts.update.UpdatesAndFetches`. Narrow with
    :func:`kvproto.is_data_free` or :func:`kvproto.is_storage_backed`; ``hasattr(cache,
    "update_and_fetch")`` and ``state == ()`` prove nothing.
    """

    @property
    def offset(self) -> int: ...

    @property
    def state(self) -> tuple[()]:
        """Always the empty tuple: nothing to evaluate."""
        ...

    def make_mask(
        self, N: int, /, *, return_array: bool = ..., window_size: int | None = ...
    ) -> AttentionMask: ...

    def update_and_fetch(self, keys: Never, values: Never, /) -> Never:
        """Raise RuntimeError naming the class; change nothing."""
        ...


SHIM = "sglang: _decode_with_batched_attention (one AttentionOffsetCache per layer and step)"

_clause = partial(Clause, who="A data-free cache")

CONTRACT = REGISTRY.register(
    "data-free",
    "Data-free caches",
    "A cache may hold no data on purpose. It says so before it is called, and refuses loudly.",
    (
        _clause(
            "FREE-1",
            Level.MUST,
            "raise RuntimeError from update_and_fetch for every input, the message "
            "naming the class; or not have the method at all.",
            "A layer that was not patched would otherwise lose its keys without a word.",
            (SHIM, "vllm-metal: OffsetCache (has no update_and_fetch)"),
        ),
        _clause(
            "FREE-2",
            Level.MUST,
            "be unchanged by that call: offset, state and masks as before.",
            "The engine that catches the error retries the step at another position.",
            (SHIM,),
        ),
        _clause(
            "FREE-3",
            Level.MUST,
            "have a state that is always empty, can be unpacked and evaluated.",
            "The state of every entry of the list is unpacked into mx.eval.",
            ("sglang: MLXModelRunner (mx.eval(token, *[c.state ...]))",),
        ),
        _clause(
            "FREE-4",
            Level.MUST,
            "make, from its offset alone, the masks that a storing cache at that "
            "offset makes, as far as each query's visible tokens go.",
            "The mask of the stand-in serves the layers whose keys are elsewhere.",
            (SHIM, "mlx-lm: models/base.create_attention_mask"),
            ("sgl-project/sglang#30050",),
        ),
        _clause(
            "FREE-5",
            Level.MUST,
            "let its offset, where it has one, be read and written, and never move "
            "it itself: neither make_mask nor a failed update does.",
            "The owner of the real keys moves it, once per step.",
            (SHIM,),
        ),
        _clause(
            "FREE-6",
            Level.MUST,
            "hold no array: none is reachable from it, and nbytes, where offered, is 0.",
            "A stand-in that keeps an array alive leaks one per layer and step.",
            (SHIM, "mlx-lm: LRUPromptCache.insert_cache (sums nbytes)"),
        ),
        _clause(
            "FREE-7",
            Level.MUST,
            "be recognisable before the call: update_and_fetch is absent, typed to "
            "return Never, or the class is registered. `state == ()` is no proof, for some "
            "storing caches have it too.",
            "Generic code learns it from a RuntimeError in the middle of a generation.",
            (SHIM, "engines that narrow with kvproto.is_data_free"),
        ),
        _clause(
            "FREE-8",
            Level.MUST,
            "answer the query methods it offers truthfully: is_trimmable() False "
            "unless trim moves the offset, empty() True, size() 0.",
            "A stand-in that says it is filled is stored, trimmed or merged.",
            ("mlx-lm: trim_prompt_cache, LRUPromptCache", "mlx-vlm: prefix cache"),
        ),
        _clause(
            "FREE-9",
            Level.MUST,
            "survive in a list that is copied, pickled or saved: same length, same "
            "order, same offset.",
            "An entry whose state flattens to nothing vanishes, and every later layer gets its "
            "neighbour's cache.",
            ("mlx-lm: LRUPromptCache.fetch_nearest_cache (deepcopy)", "mlx-lm: save_prompt_cache"),
        ),
    ),
)
