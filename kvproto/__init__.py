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
    is_opaque,
    is_quantized,
    is_storage_backed,
    is_typed_never,
    makes_mask,
    reads_back,
    register_data_free,
)
from kvproto.clause import REGISTRY, SPEC_VERSION, Clause, Contract, Level
from kvproto.contracts.batch import Batched, Mergeable, Paddable
from kvproto.contracts.composite import HasChildren
from kvproto.contracts.datafree import DataFreeCache
from kvproto.contracts.decode import Decodes, DecodesBatch, MakesDecodeSteps
from kvproto.contracts.layout import CacheLayout
from kvproto.contracts.mask import AttentionMask, MakesAttentionMask
from kvproto.contracts.measure import Measured
from kvproto.contracts.opaque import Attends, RowsHandle
from kvproto.contracts.pool import BacksCaches, KVPool
from kvproto.contracts.position import HasOffset, SettableOffset
from kvproto.contracts.quantize import AffineTriple, QuantizedDispatch, ToQuantized
from kvproto.contracts.readback import ExposesBuffers, HasBuffers, ReadsBack
from kvproto.contracts.recurrent import CountsPadding, HasSlots, MakesRecurrentMask
from kvproto.contracts.restore import FromState, FromStateAndMeta, Restorable
from kvproto.contracts.snapshot import CacheTransaction, MakesTransactions, SnapshotStore
from kvproto.contracts.state import HasState
from kvproto.contracts.trim import Trimmable
from kvproto.contracts.update import UpdatesAndFetches
from kvproto.contracts.window import FrontTrimming
from kvproto.kinds import (
    AttentionCache,
    BatchCache,
    BatchRecurrentCache,
    ChunkedCache,
    CompositeCache,
    PromptCache,
    QuantizedAttentionCache,
    RecurrentCache,
    StorageBackedCache,
)
from kvproto.visibility import Chunk, Full, Lossy, Sinks, SlidingWindow, Visibility

__all__ = [
    "REGISTRY",
    "SPEC_VERSION",
    "AffineTriple",
    "Attends",
    "AttentionCache",
    "AttentionMask",
    "BacksCaches",
    "BatchCache",
    "BatchRecurrentCache",
    "Batched",
    "CacheLayout",
    "CacheTransaction",
    "Capabilities",
    "Chunk",
    "ChunkedCache",
    "Clause",
    "CompositeCache",
    "Contract",
    "CountsPadding",
    "DataFreeCache",
    "DataFreeEvidence",
    "Decodes",
    "DecodesBatch",
    "ExposesBuffers",
    "FromState",
    "FromStateAndMeta",
    "FrontTrimming",
    "Full",
    "HasBuffers",
    "HasChildren",
    "HasOffset",
    "HasSlots",
    "HasState",
    "KVPool",
    "Level",
    "Lossy",
    "MakesAttentionMask",
    "MakesDecodeSteps",
    "MakesRecurrentMask",
    "MakesTransactions",
    "Measured",
    "Mergeable",
    "Paddable",
    "PromptCache",
    "QuantizedAttentionCache",
    "QuantizedDispatch",
    "ReadsBack",
    "RecurrentCache",
    "Restorable",
    "RowsHandle",
    "SettableOffset",
    "Sinks",
    "SlidingWindow",
    "SnapshotStore",
    "StorageBackedCache",
    "ToQuantized",
    "Trimmable",
    "UpdatesAndFetches",
    "Visibility",
    "capabilities",
    "contracts",
    "data_free_evidence",
    "has_offset",
    "is_batched",
    "is_data_free",
    "is_opaque",
    "is_quantized",
    "is_storage_backed",
    "is_typed_never",
    "makes_mask",
    "reads_back",
    "register_data_free",
]
