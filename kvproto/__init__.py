"""kvproto: the written and typed protocol of KV caches for LLM inference on MLX.

Importing this package needs neither mlx nor pytest. It holds

- the clauses of the spec (:data:`REGISTRY`), one module a contract under ``kvproto.contracts``;
- the ``typing.Protocol`` classes of each contract;
- :func:`capabilities` and the narrowing functions (:func:`is_data_free`,
  :func:`is_storage_backed`, ...) by which an engine finds out what a cache is before it calls it.
"""

from kvproto import contracts
from kvproto.capability import (
    Capabilities,
    DataFreeEvidence,
    capabilities,
    data_free_evidence,
    has_offset,
    is_batched,
    is_data_free,
    is_quantized,
    is_storage_backed,
    is_typed_never,
    makes_mask,
    reads_back,
    register_data_free,
)
from kvproto.clause import REGISTRY, SPEC_VERSION, Clause, Contract, Level
from kvproto.contracts.datafree import DataFreeCache
from kvproto.contracts.mask import AttentionMask, MakesAttentionMask
from kvproto.contracts.position import HasOffset, SettableOffset
from kvproto.contracts.readback import ExposesBuffers, ReadsBack
from kvproto.contracts.state import HasState
from kvproto.contracts.update import UpdatesAndFetches
from kvproto.kinds import AttentionCache, StorageBackedCache
from kvproto.visibility import Chunk, Full, Lossy, Sinks, SlidingWindow, Visibility

__all__ = [
    "REGISTRY",
    "SPEC_VERSION",
    "AttentionCache",
    "AttentionMask",
    "Capabilities",
    "Chunk",
    "Clause",
    "Contract",
    "DataFreeCache",
    "DataFreeEvidence",
    "ExposesBuffers",
    "Full",
    "HasOffset",
    "HasState",
    "Level",
    "Lossy",
    "MakesAttentionMask",
    "ReadsBack",
    "SettableOffset",
    "Sinks",
    "SlidingWindow",
    "StorageBackedCache",
    "UpdatesAndFetches",
    "Visibility",
    "capabilities",
    "contracts",
    "data_free_evidence",
    "has_offset",
    "is_batched",
    "is_data_free",
    "is_quantized",
    "is_storage_backed",
    "is_typed_never",
    "makes_mask",
    "reads_back",
    "register_data_free",
]
