"""Refusal: operations that a cache does not support."""

from __future__ import annotations

from kvproto.clause import REGISTRY, Clause, Level

CONTRACT = REGISTRY.register(
    "refuse",
    "Refusal",
    "What a cache cannot do is visible before the call, and harmless if called all the same.",
    (
        Clause(
            "REF-1",
            Level.MUST,
            "make an unsupported operation visible before the call: the member is absent, typed "
            "to return Never, or answered by a query (is_trimmable).",
            "Consumers probe with hasattr; a method that is there and raises ends the whole "
            "generation.",
            (
                "mlx-lm: generate.maybe_quantize_kv_cache (hasattr(c, 'to_quantized'))",
                "mlx-lm: server (batchable = all(hasattr(c, 'merge')))",
                "mlx-lm: LRUPromptCache (nbytes of every layer)",
            ),
            (
                "ml-explore/mlx-lm#1573",
                "ml-explore/mlx-lm#495",
                "ml-explore/mlx-lm#1081",
            ),
        ),
        Clause(
            "REF-2",
            Level.MUST,
            "change nothing when an unsupported operation is called all the same, and raise "
            "RuntimeError or NotImplementedError.",
            "An engine that catches the refusal goes on with the same cache.",
            ("mlx-lm: server (falls back to unbatched generation)", "exo: trim"),
        ),
        Clause(
            "REF-3",
            Level.SHOULD,
            "name the class in the message of a refusal.",
            "The message is met far from the line that chose the class.",
        ),
    ),
)
