"""What engines do with the list of the layer caches of one prompt: trim, save, load, store.

A prompt is a list with one cache for each layer, all fed the same tokens. Its caches may be of any
classes. Whatever is done to the list is done to all of them, or to none.
"""

from __future__ import annotations

import copy
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import mlx.core as mx

from kvproto import is_data_free
from reference_impl.arguments import check_int
from reference_impl.batch import BatchKVCache
from reference_impl.batch_window import BatchSlidingWindowKVCache
from reference_impl.chunk import ChunkedKVCache
from reference_impl.composite import CompositeCache
from reference_impl.datafree import OffsetCache
from reference_impl.full import KVCache
from reference_impl.opaque import RotatedKVCache
from reference_impl.quantized import QuantizedKVCache
from reference_impl.recurrent import RecurrentCache
from reference_impl.window import SlidingWindowKVCache

T = TypeVar("T", bound=type)
Prompt: TypeAlias = "list[Any]"

FORMAT = "kvproto-prompt"
VERSION = 1


def trim_prompt(caches: Sequence[Any], n: int) -> int:
    """Remove the newest tokens of every cache, the same number of each, or none (PROMPT-2).

    A cache that dropped its front may be trimmable and still not go back n tokens. How far each one
    goes is tried on copies, so that nothing is changed before it is known.

    Returns:
        The number removed of each: n, or as far as all of them go back; 0 if one cannot be trimmed.

    Raises:
        TypeError: n is not an int.
        ValueError: n is negative.
    """
    check_int("trim_prompt", "n", n, minimum=0)
    if n == 0 or not caches:
        return 0
    if not all(hasattr(cache, "is_trimmable") and cache.is_trimmable() for cache in caches):
        return 0
    goes = n
    while goes:
        reached = min(int(copy.deepcopy(cache).trim(goes)) for cache in caches)
        if reached >= goes:
            break
        goes = max(reached, 0)  # shorter for all; tried again, for a trim may be all or nothing
    for cache in caches if goes else ():
        cache.trim(goes)
    return goes


class PromptFileError(ValueError):
    """A file that cannot be read as a prompt; the message says what it is and what to do."""


@dataclass(frozen=True)
class _Form:
    """How a class is written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class PromptFiles:
    """Saves and loads prompts: any mix of classes, in order, with metadata (PROMPT-3).

    A file is safetensors: the arrays of all caches, and as metadata the format, its version, the
    class and the structure of each cache, and the caller's own strings. It names classes as
    ``module:QualifiedName``. Loading looks a name up among those that were registered here and
    nowhere else: no file makes anything be imported or run.

    The classes of this package are registered; others are, before loading, by :meth:`register`.

    Args:
        classes: further classes to register.
    """

    def __init__(self, *classes: type) -> None:
        self._forms: dict[str, _Form] = {}
        for cls in (*_OWN, *classes):
            self.register(cls)

    def register(
        self,
        cls: T,
        *,
        write: Callable[[Any], Any] | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> T:
        """Let files hold caches of this class; works as a decorator.

        Args:
            cls: the class.
            write: what to keep of a cache: a tree of mx.array, int, float, bool, str and None. Left
                out: ``state``, with ``meta_state`` where there is one, and ``offset`` of a
                data-free cache, whose state holds nothing.
            read: a cache from that. Left out: ``from_state``, or a new cache whose state, or
                offset, is assigned.

        Raises:
            TypeError: ``cls`` is no class.
        """
        if not isinstance(cls, type):
            raise TypeError(f"PromptFiles.register: cls must be a class, got {cls!r}")
        self._forms[_name_of(cls)] = _Form(
            write or _written, read or (lambda kept: _read(cls, kept))
        )
        return cls

    def save(
        self,
        path: str | os.PathLike[str],
        caches: Sequence[Any],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write a prompt. The file appears whole or not at all: it is written beside its place,
        then moved there.

        Raises:
            TypeError: metadata is not of strings, or a cache keeps something that no file holds.
            ValueError: the class of a cache is not registered.
            OSError: the file cannot be written.
        """
        user = dict(metadata or {})
        if not all(isinstance(text, str) for pair in user.items() for text in pair):
            raise TypeError(f"PromptFiles.save: metadata must map str to str, got {metadata!r}")
        arrays: dict[str, mx.array] = {}
        layers = []
        for cache in caches:
            name = _name_of(type(cache))
            if name not in self._forms:
                raise ValueError(
                    f"PromptFiles.save: caches must be of registered classes, got {name}; "
                    "call register with it first"
                )
            layers.append({"class": name, "kept": _packed(self._forms[name].write(cache), arrays)})
        about = {
            "format": FORMAT,
            "version": str(VERSION),
            "layers": json.dumps(layers),
            "metadata": json.dumps(user),
        }
        place = Path(path)
        beside = place.with_name(f".{place.name}.{os.getpid()}.safetensors")
        try:
            mx.save_safetensors(str(beside), arrays, about)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)

    def load(self, path: str | os.PathLike[str]) -> tuple[Prompt, dict[str, str]]:
        """The caches of a file, in order, and its metadata.

        Everything is read before this returns, so the file may be replaced at once.

        Raises:
            FileNotFoundError: there is no such file.
            PromptFileError: the file is damaged, of another program, of a newer version, or holds
                a class that is not registered.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"PromptFiles.load: there is no file {os.fspath(path)!r}")
        what = f"PromptFiles.load: {os.fspath(path)!r}"
        try:
            loaded: Any = mx.load(os.fspath(path), format="safetensors", return_metadata=True)
            arrays, about = loaded
            mx.eval(arrays)
        except (RuntimeError, ValueError) as error:
            raise PromptFileError(f"{what} is damaged, or no safetensors file: {error}") from error
        if about.get("format") != FORMAT:
            raise PromptFileError(
                f"{what} was not written by PromptFiles (its format is {about.get('format')!r})"
            )
        if about.get("version") != str(VERSION):
            raise PromptFileError(
                f"{what} is of version {about.get('version')}, and this reads version {VERSION}; "
                "load it with the release that wrote it, or a newer one"
            )
        try:
            layers, user = json.loads(about["layers"]), json.loads(about["metadata"])
            kept = [(layer["class"], _unpacked(layer["kept"], arrays)) for layer in layers]
        except (KeyError, TypeError, ValueError) as error:
            raise PromptFileError(f"{what} is damaged: {error!r}") from error
        unknown = [name for name, _ in kept if name not in self._forms]
        if unknown:
            raise PromptFileError(
                f"{what} holds {', '.join(sorted(set(unknown)))}; import the class and call "
                "register with it before loading"
            )
        caches = []
        for name, tree in kept:
            try:
                caches.append(self._forms[name].read(tree))
            except Exception as error:
                raise PromptFileError(
                    f"{what} holds a {name} that cannot be restored: {error!r}"
                ) from error
        return caches, user


class PromptStore:
    """Keeps prompts by their tokens, and hands out copies that stand at a prefix of a new prompt.

    What is handed out is exactly the state after a prefix (PROMPT-4): a stored prompt as it is, or
    trimmed back where every cache can go back all the way. Else it is a miss, for a recurrent layer
    or a window that wrapped can be used at its own end only. At least one token is left to feed,
    which a model needs to go on.

    The entry that was used longest ago is dropped first.

    Args:
        max_entries: prompts to keep.

    Raises:
        TypeError: ``max_entries`` is not an int.
        ValueError: ``max_entries`` is below 1.
    """

    def __init__(self, max_entries: int = 10) -> None:
        self._most = check_int(type(self).__name__, "max_entries", max_entries, minimum=1)
        self._entries: OrderedDict[tuple[int, ...], Prompt] = OrderedDict()

    trim_prompt = staticmethod(trim_prompt)

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return True

    def insert(self, tokens: Sequence[int], caches: Sequence[Any]) -> None:
        """Keep a copy of the caches that were fed exactly these tokens.

        Raises:
            ValueError: there are no tokens.
        """
        if not tokens:
            raise ValueError(f"{type(self).__name__}: tokens must hold at least one, got none")
        self._entries[tuple(tokens)] = copy.deepcopy(list(caches))
        self._entries.move_to_end(tuple(tokens))
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def fetch(self, tokens: Sequence[int]) -> tuple[Prompt | None, list[int]]:
        """The caches of the longest prefix that can be served, and the tokens left to feed.

        Returns:
            Copies, independent of the store, and the rest of ``tokens``; or None and all of them.
        """
        wanted = list(tokens)
        shared = {stored: min(_common(stored, wanted), len(wanted) - 1) for stored in self._entries}
        # The longest prefix first; of equal ones that which needs the least trimming.
        for stored in sorted(shared, key=lambda entry: (-shared[entry], len(entry))):
            length = shared[stored]
            if length < 1:
                break
            caches = copy.deepcopy(self._entries[stored])
            back = len(stored) - length
            if trim_prompt(caches, back) == back:
                self._entries.move_to_end(stored)
                return caches, wanted[length:]
        return None, wanted


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two prompts begin with in common."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


# -- what is kept of a cache -------------------------------------------------------------------


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _written(cache: Any) -> Any:
    """What tells a cache from a new one."""
    if is_data_free(cache):
        return getattr(cache, "offset", None)
    state = cache.state
    return [state, cache.meta_state] if hasattr(cache, "meta_state") else [state]


def _read(cls: Any, kept: Any) -> Any:
    """A cache of this class from what :func:`_written` gave."""
    if not isinstance(kept, list):  # data-free
        cache = cls()
        if kept is not None:
            cache.offset = kept
        return cache
    if hasattr(cls, "from_state"):
        return cls.from_state(*kept)
    cache = cls()
    cache.state = kept[0]
    if len(kept) > 1:
        cache.meta_state = kept[1]
    return cache


def _packed(tree: Any, arrays: dict[str, mx.array]) -> Any:
    """A tree as JSON, its arrays put into ``arrays``. safetensors holds no empty array: those are
    kept by shape and dtype."""
    if isinstance(tree, mx.array):
        name = str(len(arrays))
        arrays[name] = tree if tree.size else mx.zeros((1,), tree.dtype)
        return {"array": name, "shape": list(tree.shape)}
    if isinstance(tree, (tuple, list)):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [_packed(item, arrays) for item in tree]}
    if isinstance(tree, dict):
        return {"dict": [[key, _packed(item, arrays)] for key, item in tree.items()]}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    raise TypeError(
        "PromptFiles.save: a cache must keep mx.array, int, float, bool, str and None in tuples, "
        f"lists and dicts, got {type(tree).__name__}"
    )


def _unpacked(tree: Any, arrays: Mapping[str, mx.array]) -> Any:
    if "array" in tree:
        stored = arrays[tree["array"]]
        return mx.zeros(tree["shape"], stored.dtype) if 0 in tree["shape"] else stored
    if "tuple" in tree:
        return tuple(_unpacked(item, arrays) for item in tree["tuple"])
    if "list" in tree:
        return [_unpacked(item, arrays) for item in tree["list"]]
    if "dict" in tree:
        return {key: _unpacked(item, arrays) for key, item in tree["dict"]}
    return tree["value"]


_OWN = (
    BatchKVCache,
    BatchSlidingWindowKVCache,
    ChunkedKVCache,
    CompositeCache,
    KVCache,
    OffsetCache,
    QuantizedKVCache,
    RecurrentCache,
    RotatedKVCache,
    SlidingWindowKVCache,
)
