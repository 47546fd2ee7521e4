"""The kinds of cache that people name, composed of the contracts' protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kvproto.contracts.mask import MakesAttentionMask
from kvproto.contracts.position import HasOffset
from kvproto.contracts.state import HasState
from kvproto.contracts.update import UpdatesAndFetches

if TYPE_CHECKING:
    import mlx.core as mx  # noqa: F401 (named in a forward reference)


class AttentionCache(
    HasOffset[int], MakesAttentionMask, HasState, UpdatesAndFetches["mx.array"], Protocol
):
    """What an attention layer of a single sequence uses: position, mask, state and plain arrays."""


class StorageBackedCache(Protocol):
    """A cache that keeps what is appended; what :func:`kvproto.is_storage_backed` narrows to."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> tuple[Any, Any]: ...
