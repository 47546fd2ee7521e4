"""mlx-lm's ``save_prompt_cache`` and ``load_prompt_cache``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conformance.profiles.consumer import Answer, Consumer, Finding, Member, Need
from conformance.traits import Traits

if TYPE_CHECKING:
    from conformance.verdict import Report


SAVE = "save_prompt_cache: tree_flatten of every state"
LOAD = "load_prompt_cache: from_state of the class of that name"
MODULE = "mlx_lm.models.cache"
NAMES = (
    "ArraysCache",
    "BatchKVCache",
    "BatchRotatingKVCache",
    "CacheList",
    "ChunkedKVCache",
    "ConcatenateKVCache",
    "KVCache",
    "QuantizedKVCache",
    "RotatingKVCache",
)
"""Classes that a name in the file can stand for."""


def _asks(traits: Traits, report: Report) -> Iterable[Finding]:
    module, _, name = report.class_name.rpartition(".")
    if traits.kind == "data-free":
        told = "its state has no leaf: the entry is lost, and later layers move up"
        yield Finding(Answer.NO, told)
    if module == MODULE:
        return
    if name in NAMES:
        told = f"the name {name} is restored as {MODULE}:{name}, another class"
        yield Finding(Answer.NOT_JUDGED, told)
    else:
        told = f"{MODULE} has no {name}: loading the file raises KeyError"
        yield Finding(Answer.NO, told)


CONSUMER = Consumer(
    name="mlx-lm:prompt-file",
    about="save_prompt_cache writes every state to a safetensors file beside the names of the "
    "classes; load_prompt_cache restores each without running __init__.",
    kinds=("attention", "recurrent", "composite", "data-free"),
    needs=(
        Need(("STATE-1", "STATE-3"), SAVE, "writes the leaves of state"),
        Need(("REST-1", "REST-2", "REST-4", "REST-5"), LOAD, "goes on with what it restored"),
        Need(
            ("REST-3",),
            LOAD,
            "restores an empty cache",
            unsure="a file is written of caches that were filled",
        ),
        Need(("COMP-2",), LOAD, "restores children by their own classes"),
        Need(("PROMPT-3",), LOAD, "restores layers in order"),
    ),
    members=(
        Member("state", SAVE, "there is nothing to write"),
        Member("from_state", LOAD, "loading the file raises AttributeError"),
    ),
    asks=_asks,
    issues=("ml-explore/mlx-lm#1250", "ml-explore/mlx-lm#1384"),
)
