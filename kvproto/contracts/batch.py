"""Batches: merging single caches, and what a batch of them does afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from typing_extensions import Self

from kvproto.clause import REGISTRY, Clause, Level


class Mergeable(Protocol):
    """A single-sequence cache that can become a row of a batch.

    Its presence is what engines take for "batchable".
    """

    @classmethod
    def merge(cls, caches: Sequence[Any], /) -> Any:
        """A batch with one row for each cache, in order; the members stay as they were."""
        ...


class Batched(Protocol):
    """A cache of several rows, which come and go."""

    def extend(self, other: Self, /) -> None:
        """Append the rows of another batch."""
        ...

    def filter(self, batch_indices: Any, /) -> None:
        """Keep these rows, in this order; a list of int or an integer mx.array."""
        ...

    def extract(self, idx: int, /) -> Any:
        """One row as a cache of the single-sequence class, owning its memory."""
        ...


class Paddable(Protocol):
    """A batch that takes prompts of different lengths, padded to one."""

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | None = ...,
        lengths: Sequence[int] | None = ...,
        right_padding: Sequence[int] | None = ...,
    ) -> None:
        """Announce ragged prompts, before their first chunk."""
        ...

    def finalize(self) -> None:
        """Turn the announced right padding into left padding, after the last chunk."""
        ...


BATCHES = "mlx-lm: BatchGenerator (merge, prepare, finalize, extend, filter, extract)"

CONTRACT = REGISTRY.register(
    "batch",
    "Batches",
    "Whatever is done to a batch, each row is what it would be alone.",
    (
        Clause(
            "BATCH-1",
            Level.MUST,
            "give every row of a batch what it would get alone: visible tokens and offset.",
            "A request's text depends on the requests that it was batched with.",
            (BATCHES,),
            ("jundot/omlx#2172", "ml-explore/mlx-lm#439"),
        ),
        Clause(
            "BATCH-2",
            Level.MUST,
            "give member i back by merge and then extract(i): class, offset, tokens, window and "
            "sinks.",
            "A finished request is stored, and continued by the next turn of the conversation.",
            (BATCHES, "mlx-lm: server (finished rows go into the prompt store)"),
            (
                "ml-explore/mlx-lm#738",
                "ml-explore/mlx-lm#1052",
                "vllm-project/vllm-metal#139",
            ),
        ),
        Clause(
            "BATCH-3",
            Level.MUST,
            "accept empty and partly filled members, all-empty input and operations on an empty "
            "batch, keeping every field at the same number of rows.",
            "New requests join a batch that is running; none of their layers holds anything yet.",
            (BATCHES,),
            (
                "ml-explore/mlx-lm#755",
                "ml-explore/mlx-lm#1072",
                "ml-explore/mlx-lm#1141",
                "ml-explore/mlx-lm#1736",
            ),
        ),
        Clause(
            "BATCH-4",
            Level.MUST,
            "filter by a Python list and by an mx.array, in any order, and append rows by extend; "
            "neither moves a row's tokens.",
            "mlx-lm passes lists, mlx-vlm and mlx-engine arrays.",
            (BATCHES, "mlx-vlm, mlx-engine: filter(mx.array)"),
            ("ml-explore/mlx-lm#799", "jundot/omlx#2172"),
        ),
        Clause(
            "BATCH-5",
            Level.MUST,
            "let pending right padding take part in every operation between prepare and finalize; "
            "finalize with nothing pending is no operation, and chunks of one token are legal.",
            "Rows leave a batch, or are stored, while prompts of other lengths are still fed.",
            (BATCHES, "mlx-lm: server (extracts rows during prefill)"),
            ("ml-explore/mlx-lm#1746", "ml-explore/mlx-lm#1430"),
        ),
        Clause(
            "BATCH-6",
            Level.MUST,
            "combine left padding and right padding, and never let padding evict tokens.",
            "Short prompts lose their first tokens to the padding of long ones.",
            (BATCHES,),
            ("ml-explore/mlx-lm#439", "ml-explore/mlx-lm#1908"),
        ),
        Clause(
            "BATCH-7",
            Level.MUST,
            "not inherit a merge that turns it into another kind of cache: none beats a wrong "
            "one, and hasattr must tell the truth.",
            "A compressed, quantised or windowed cache silently becomes a plain one.",
            (BATCHES, "mlx-lm: server (batchable = all(hasattr(c, 'merge')))"),
            ("rajveer43/VeloxQuant-MLX#358", "ml-explore/mlx-lm#834"),
        ),
        Clause(
            "BATCH-8",
            Level.MUST,
            "leave the members of a merge, and the batch of an extract, unchanged and unaliased.",
            "A stored prompt changes while the batch that it was merged into goes on.",
            (BATCHES, "mlx-lm: LRUPromptCache (entries are merged into running batches)"),
        ),
        Clause(
            "BATCH-9",
            Level.MUST,
            "keep the dtype through merge and extend, empty members included.",
            "A bfloat16 model goes on in float32 after an empty request joined.",
            (BATCHES,),
            ("ml-explore/mlx-lm#1491",),
        ),
        Clause(
            "BATCH-10",
            Level.SHOULD,
            "filter to zero rows, and go on from there.",
            "The last request leaves before the next one joins.",
        ),
    ),
)
