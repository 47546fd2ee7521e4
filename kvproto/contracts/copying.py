"""Copying: ``copy.deepcopy`` and pickle."""

from __future__ import annotations

from kvproto.clause import REGISTRY, Clause, Level

STORE = "mlx-lm: LRUPromptCache.fetch_nearest_cache (deepcopy of every layer)"

CONTRACT = REGISTRY.register(
    "copying",
    "Copying",
    "A deep copy is a fork of the log: both go on alone.",
    (
        Clause(
            "COPY-1",
            Level.MUST,
            "give, by copy.deepcopy, an indistinguishable and independent cache, in every state, "
            "slots and nested children included.",
            "A stored prompt changes under the store while a request goes on with its copy.",
            (STORE, "mlx-engine: exact prompt hit", "exo: prefix cache"),
            ("waybarrios/vllm-mlx#691", "waybarrios/vllm-mlx#683"),
        ),
        Clause(
            "COPY-2",
            Level.MUST,
            "neither copy shared storage (a pool) nor fail on it when it is deep-copied.",
            "A copy of one request's cache copies the memory of all requests, or raises.",
            (STORE,),
        ),
        Clause(
            "COPY-3",
            Level.SHOULD,
            "pickle, if it deep-copies.",
            "Engines hand caches to another process.",
        ),
    ),
)
