"""Faults of the refusal contract."""

from __future__ import annotations

from typing import Any

from reference_impl import KVCache, OffsetCache
from tests.faults.gallery import Absent, fault


@fault("REF-1")
class OffersQuantisation(KVCache):
    """to_quantized is there and raises."""

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be quantised")


@fault("REF-1")
class OffersMerge(KVCache):
    """merge is there and raises, so that a server takes it for batchable."""

    @classmethod
    def merge(cls, caches: Any) -> Any:
        raise NotImplementedError(f"{cls.__name__} cannot be merged")


@fault("REF-1")
class OffersNbytes(KVCache):
    """nbytes is there and raises, as of a base class."""

    @property
    def nbytes(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not count")


@fault("TRIM-5")
class SaysTrimmable(KVCache):
    """is_trimmable() is True, and there is no trim."""

    trim = Absent()


# Whatever is refused with an exception although it is offered breaks REF-1, too.
@fault("REF-2", also=("REF-1",))
class ClearsBeforeRefusing(KVCache):
    """to_quantized gives up its rows, then raises."""

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        self.offset = 0
        raise NotImplementedError(f"{type(self).__name__} cannot be quantised")


@fault("REF-2", also=("REF-1",))
class MovesBeforeRefusing(OffsetCache):
    """extract moves offset, then raises."""

    def extract(self, row: int) -> Any:
        self._offset += 1
        raise NotImplementedError(f"{type(self).__name__} holds no rows")


@fault("REF-3", also=("REF-1",))
class RefusesWithoutName(KVCache):
    """The message of to_quantized does not name the class."""

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        raise NotImplementedError("not supported")
