"""Faults of the prompt contract: they handle lists of reference caches wrongly."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from reference_impl import PromptFiles, PromptStore
from tests.faults.gallery import fault

MIXED = ("reference_impl:KVCache()", "tests.faults.bases:GoesBackToItsFront(4)")
"""Caches that are trimmable, and go back less or more far."""

# -- PROMPT-1: one offset ----------------------------------------------------------------------


@fault("PROMPT-1", also=("PROMPT-3",))
class DataFreeLayersStartAnew(PromptFiles):
    """A data-free layer comes back from a file at offset 0."""

    def load(self, path: Any) -> Any:
        caches, metadata = super().load(path)
        for cache in caches:
            if type(cache).__name__ == "OffsetCache":
                cache.offset = 0
        return caches, metadata


# -- PROMPT-2: all are trimmed, or none --------------------------------------------------------


@fault("PROMPT-2", also=("PROMPT-1",), claims={"caches": MIXED})
class TrimsEachAsFarAsItGoes(PromptStore):
    """Every cache is trimmed as far as it goes, and the first one's count is returned."""

    @staticmethod
    def trim_prompt(caches: Sequence[Any], n: int) -> int:
        if not all(cache.is_trimmable() for cache in caches):
            return 0
        first, *_ = [cache.trim(n) for cache in caches]
        return int(first)


@fault("PROMPT-2", also=("PROMPT-1",))
class TrimsThoseThatCan(PromptStore):
    """Caches that cannot be trimmed are passed over."""

    @staticmethod
    def trim_prompt(caches: Sequence[Any], n: int) -> int:
        return max(cache.trim(n) for cache in caches if cache.is_trimmable())


@fault("PROMPT-2")
class ReturnsWhatWasAsked(PromptStore):
    """trim_prompt returns n, whatever was removed."""

    @staticmethod
    def trim_prompt(caches: Sequence[Any], n: int) -> int:
        PromptStore.trim_prompt(caches, n)
        return n


# -- PROMPT-3: files ---------------------------------------------------------------------------


@fault("PROMPT-3")
class LeavesOutDataFreeLayers(PromptFiles):
    """Layers without data are not written."""

    def save(self, path: Any, caches: Sequence[Any], metadata: Any = None) -> None:
        super().save(path, [cache for cache in caches if cache.state != ()], metadata)


@fault("PROMPT-3")
class SortsLayersByName(PromptFiles):
    """Layers come back in the order of their class names."""

    def load(self, path: Any) -> Any:
        caches, metadata = super().load(path)
        return sorted(caches, key=lambda cache: type(cache).__name__), metadata


@fault("PROMPT-3")
class MetadataInLatin(PromptFiles):
    """Metadata goes through an encoding that has no place for some of it."""

    def save(
        self, path: Any, caches: Sequence[Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        kept = {
            key: text.encode("ascii", "ignore").decode() for key, text in (metadata or {}).items()
        }
        super().save(path, caches, kept)


@fault("PROMPT-3", also=("PROMPT-1",))
class OfOneClassOnly(PromptFiles):
    """Every layer is loaded as the first layer's class is."""

    def load(self, path: Any) -> Any:
        arrays, about = mx.load(path, format="safetensors", return_metadata=True)  # type: ignore[misc, call-overload]
        layers = json.loads(about["layers"])
        for layer in layers:
            layer["class"] = layers[0]["class"]
        mx.save_safetensors(path, arrays, {**about, "layers": json.dumps(layers)})
        return super().load(path)


@fault("PROMPT-3")
class SavesHalfPrecision(PromptFiles):
    """Arrays are written as float16."""

    def load(self, path: Any) -> Any:
        caches, metadata = super().load(path)
        for cache in caches:
            if type(cache).__name__ == "KVCache":
                keys, values, offset = cache.state
                cache.state = (
                    keys.astype(mx.float16).astype(keys.dtype),
                    values.astype(mx.float16).astype(values.dtype),
                    offset,
                )
        return caches, metadata


# -- PROMPT-4: a prefix ------------------------------------------------------------------------


@fault("PROMPT-4")
class HandsOutWhatItStores(PromptStore):
    """Caches are handed out, not copies of them."""

    def fetch(self, tokens: Sequence[int]) -> Any:
        caches = self._entries.get(tuple(tokens[:-1]))
        return (caches, list(tokens[-1:])) if caches is not None else super().fetch(tokens)


@fault("PROMPT-4")
class ServesTheWholeEntry(PromptStore):
    """Any entry that begins alike is served whole, as one that cannot be trimmed."""

    def fetch(self, tokens: Sequence[int]) -> Any:
        for stored, caches in self._entries.items():
            if stored[:1] == tuple(tokens[:1]):
                return copy.deepcopy(caches), list(tokens[-1:])
        return None, list(tokens)


@fault("PROMPT-4")
class RestIsOneShort(PromptStore):
    """The rest leaves out a token that the caches do not hold."""

    def fetch(self, tokens: Sequence[int]) -> Any:
        caches, rest = super().fetch(tokens)
        return caches, rest[1:] if caches is not None and len(rest) > 1 else rest


@fault("PROMPT-4")
class TrimsOneTooFew(PromptStore):
    """An entry that is trimmed back keeps one token more."""

    def fetch(self, tokens: Sequence[int]) -> Any:
        caches, rest = super().fetch(tokens)
        exact = tuple(tokens[: len(tokens) - len(rest)]) in self._entries
        if caches is None or exact or len(rest) < 1:
            return caches, rest
        return caches, list(tokens[len(tokens) - len(rest) + 1 :])
