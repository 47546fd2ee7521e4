"""The protocols that a class is held against, and what it costs to lack one."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import get_protocol_members

import kvproto


@dataclass(frozen=True)
class Asked:
    """A protocol as it is written in an annotation."""

    annotation: str
    """As in ``HasOffset[int]``; ``mx`` is mlx.core, other names are kvproto's."""
    without: str
    """Who goes without what if a cache lacks it."""

    @property
    def members(self) -> list[str]:
        protocol = getattr(kvproto, self.annotation.partition("[")[0])
        return sorted(get_protocol_members(protocol))


CAPABILITIES = (
    Asked("HasOffset[int]", "mlx-lm: models read the position of a single sequence before RoPE"),
    Asked("HasOffset[mx.array]", "mlx-lm: BatchGenerator, whose rows stand at different positions"),
    Asked("SettableOffset[int]", "sglang: a buffer is reused by offset = 0"),
    Asked(
        "MakesAttentionMask",
        "mlx-lm: create_attention_mask takes a causal mask from position 0 instead, silently",
    ),
    Asked("UpdatesAndFetches[mx.array]", "mlx-lm: models that attend to plain arrays"),
    Asked(
        "UpdatesAndFetches[AffineTriple]",
        "mlx-lm: scaled_dot_product_attention of a cache with bits",
    ),
    Asked("HasState", "mlx-lm: generate_step evaluates it after each chunk of the prompt"),
    Asked("Restorable", "mlx-lm: load_prompt_cache; sglang: snapshots of auxiliary state"),
    Asked("FromState", "mlx-lm 0.32: load_prompt_cache"),
    Asked("FromStateAndMeta", "mlx-lm to 0.31 and mlx-vlm: load_prompt_cache"),
    Asked("Trimmable", "mlx-lm: speculative_generate_step; LRUPromptCache, for a longer entry"),
    Asked("Measured", "mlx-lm: LRUPromptCache (nbytes); merge (size)"),
    Asked("FrontTrimming", "mlx-lm: llama4"),
    Asked("QuantizedDispatch", "mlx-lm: scaled_dot_product_attention takes results as plain"),
    Asked("ToQuantized", "mlx-lm: kv_bits leaves the layer as it is, silently"),
    Asked("Mergeable", "mlx-lm: the server does not batch, BatchGenerator raises"),
    Asked("Batched", "mlx-lm: BatchGenerator, when a row joins or leaves"),
    Asked("Paddable", "mlx-lm: BatchGenerator, for prompts of different lengths"),
    Asked("HasSlots", "mlx-lm: convolution and state-space layers"),
    Asked("CountsPadding", "mlx-lm: recurrent layers read lengths and call advance"),
    Asked("MakesRecurrentMask", "mlx-lm: create_ssm_mask"),
    Asked("HasChildren", "mlx-lm: falcon_h1, deepseek_v32, longcat_flash (cache[0], cache[1])"),
    Asked("ReadsBack[mx.array]", "mlx-lm: gemma3n and afm7, whose layers share keys and values"),
    Asked("HasBuffers[Any]", "sglang: rows are copied into its pool by position"),
    Asked("ExposesBuffers[Any]", "mlx-lm: pipelined models (cache.keys = mx.depends(...))"),
    Asked("Decodes[mx.array]", "sglang: MLXAttentionWrapper"),
)
"""One capability each, in the order of the spec."""

KINDS = (
    Asked("AttentionCache", "the attention layers of one sequence"),
    Asked("QuantizedAttentionCache", "attention to quantised keys and values"),
    Asked("ChunkedCache", "attention in chunks (Llama 4)"),
    Asked("BatchCache", "the attention layers of a batch"),
    Asked("RecurrentCache", "convolution and state-space layers"),
    Asked("BatchRecurrentCache", "convolution and state-space layers of a batch"),
    Asked("CompositeCache", "layers with several kinds of state"),
    Asked("DataFreeCache", "layers whose keys and values are kept elsewhere"),
)
"""What a layer uses; a class is meant to be one of them."""

ALL = CAPABILITIES + KINDS
