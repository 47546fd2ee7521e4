"""Threads and tracing: where a cache may be used, beside the thread that filled it.

An array of MLX that is not evaluated belongs to a stream of the thread that made it, and cannot be
evaluated in another one. Engines prefill in one thread, and store, measure or continue in another.
"""

from __future__ import annotations

from typing import Literal, Protocol

from kvproto.clause import REGISTRY, Clause, Level


class Compilable(Protocol):
    """A cache whose update may be compiled once tokens are held:
    ``mx.compile(cache.update_and_fetch, inputs=cache.state, outputs=cache.state)``.

    ``mx.compile`` runs the method once for a shape and then repeats the operations that it
    recorded, so all that changes from step to step, the position included, must be an array in
    ``state``, and ``state`` a list or dict that the cache itself works on. A class that does not
    say ``compilable = True`` is not meant for it.
    """

    @property
    def compilable(self) -> Literal[True]: ...


SERVER = "mlx-lm: server (the generation thread fills caches, request threads hand them on)"
WORKERS = "omlx, vllm-mlx: prefix caches that are stored by a worker thread"

CONTRACT = REGISTRY.register(
    "threads",
    "Threads and tracing",
    "What one thread evaluated, another can use; mx.compile only where the class says so.",
    (
        Clause(
            "RUN-1",
            Level.MUST,
            "work in another thread, once its state was evaluated in the thread that used it.",
            "The first step in the other thread raises that there is no such stream.",
            (SERVER, WORKERS),
            ("ml-explore/mlx-lm#1181", "ml-explore/mlx-lm#1256", "jundot/omlx#891"),
        ),
        Clause(
            "RUN-2",
            Level.SHOULD,
            "be right inside mx.compile, if it says `compilable = True`.",
            "A compiled update repeats the position and the buffers of its first call: tokens are "
            "written over each other.",
            (),
            ("ml-explore/mlx-swift-lm#406", "jundot/omlx#3334"),
        ),
        Clause(
            "RUN-3",
            Level.SHOULD,
            "work in another thread also where only what update_and_fetch returned was evaluated.",
            "A decode loop evaluates tokens and never state; a request that ends is stored by "
            "another thread.",
            (),
            ("ml-explore/mlx-lm#1256", "ml-explore/mlx-lm#1731"),
        ),
    ),
)
