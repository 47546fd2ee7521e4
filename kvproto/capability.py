"""What a cache is, found out before it is called.

``hasattr(cache, "update_and_fetch")`` is true of a data-free cache, and ``state == ()`` is true
of an empty storing one. The functions here read what a class declares: its members, its
annotations, a registry and, last, the code of the method. They never call
``update_and_fetch``, and never raise for an odd object.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from typing_extensions import Never, TypeIs

from kvproto.contracts.datafree import DataFreeCache
from kvproto.contracts.mask import MakesAttentionMask
from kvproto.contracts.position import HasOffset
from kvproto.contracts.readback import ReadsBack
from kvproto.kinds import StorageBackedCache

if TYPE_CHECKING:
    import mlx.core as mx

METHODS = (
    "update_and_fetch",
    "make_mask",
    "keys_and_values",
    "is_trimmable",
    "trim",
    "size",
    "empty",
    "to_quantized",
    "from_state",
    "merge",
    "extract",
    "filter",
    "extend",
    "prepare",
    "finalize",
    "advance",
    "maybe_trim_front",
    "attend",
    "write_token",
    "get_kv",
    "reset",
    "set_kv",
    "trim_prompt",
    "save",
    "load",
    "insert",
    "fetch",
    "backed_cache",
    "store_cache",
    "restore_cache",
    "transaction",
    "attention_pool_index",
    "full_kv_pool_index",
    "batched_decode",
    "__getitem__",
)
"""Methods that the contracts name."""

ATTRIBUTES = (
    "offset",
    "state",
    "meta_state",
    "keys",
    "values",
    "nbytes",
    "bits",
    "group_size",
    "left_padding",
    "lengths",
    "start_position",
    "caches",
    "attention_layer_indices",
    "auxiliary_layer_indices",
)
"""Attributes and properties that the contracts name."""

_ABSENT = object()
_FUNCTION_LIKE = (FunctionType, classmethod, staticmethod)


def _static(cache: object, name: str) -> object:
    """The member as it is stored, properties not run; ``_ABSENT`` where there is none."""
    try:
        return inspect.getattr_static(cache, name)
    except AttributeError:
        return _ABSENT


def _read(cache: object, name: str) -> object:
    """The member's value; ``_ABSENT`` where reading it raises."""
    try:
        return getattr(cache, name)
    except Exception:
        return _ABSENT


def _has_method(cache: object, name: str) -> bool:
    stored = _static(cache, name)
    if isinstance(stored, _FUNCTION_LIKE):
        return True
    if stored is _ABSENT and not hasattr(type(cache), "__getattr__"):
        return False
    # A callable attribute, a proxy's member, or the idiom that hides an inherited method: a
    # property that raises AttributeError.
    return callable(_read(cache, name))


def _has_attribute(cache: object, name: str) -> bool:
    stored = _static(cache, name)
    if stored is _ABSENT:
        return hasattr(type(cache), "__getattr__") and _read(cache, name) is not _ABSENT
    if inspect.ismemberdescriptor(stored):  # a slot, perhaps never assigned
        return _read(cache, name) is not _ABSENT
    # A property counts without being run: `state` of an empty cache may well raise (STATE-1).
    return True


# --------------------------------------------------------------------------------------------
# Data-free caches
# --------------------------------------------------------------------------------------------


class DataFreeEvidence(str, Enum):
    """How it is known that a cache holds no data."""

    TYPED = "update_and_fetch is typed to return Never"
    REGISTERED = "its class is registered"
    CODE = "the code of update_and_fetch can only raise, and its state is empty"


_registered: set[type | str] = {
    # Classes of packages that do not know this project, as module:qualified name.
    "sglang.srt.hardware_backend.mlx.kv_cache.attention_kv_cache:AttentionOffsetCache",
    "sglang.srt.hardware_backend.mlx.kv_cache.contiguous_cache:OffsetCache",
    "vllm_metal.attention.context:OffsetCache",
}

_T = TypeVar("_T", bound=type)


@overload
def register_data_free(cls: _T) -> _T: ...
@overload
def register_data_free(cls: str) -> str: ...
def register_data_free(cls: type | str) -> type | str:
    """Say that a class holds no data although its ``update_and_fetch`` is not typed ``Never``.

    Args:
        cls: the class (this also works as a decorator), or ``"module:QualifiedName"`` for a
            class that need not be importable here. A vendored or path-loaded copy matches too:
            one module path may be the tail of the other.

    A subclass that overrides ``update_and_fetch`` is not covered.

    Raises:
        TypeError: ``cls`` is neither a class nor a string.
        ValueError: the string is not of the form ``module:QualifiedName``.
    """
    if isinstance(cls, str):
        module, colon, name = cls.partition(":")
        if not (module and colon and name):
            raise ValueError(f"register_data_free: {cls!r} is not of the form module:QualifiedName")
    elif not isinstance(cls, type):
        raise TypeError(f"register_data_free: expected a class or a string, got {cls!r}")
    _registered.add(cls)
    return cls


def _is_registered(cls: type) -> bool:
    if cls in _registered:
        return True
    for entry in _registered:
        if isinstance(entry, str):
            module, _, name = entry.partition(":")
            if name == cls.__qualname__ and (
                f".{module}".endswith(f".{cls.__module__}")
                or f".{cls.__module__}".endswith(f".{module}")
            ):
                return True
    return False


def _registered_for_update(cls: type) -> bool:
    """Whether the class, or the ancestor whose update_and_fetch it inherits, is registered."""
    for ancestor in cls.__mro__:
        if _is_registered(ancestor):
            return True
        if "update_and_fetch" in vars(ancestor):
            return False
    return False


def _function(stored: object) -> FunctionType | None:
    if isinstance(stored, (classmethod, staticmethod)):
        stored = stored.__func__
    try:
        function = inspect.unwrap(stored) if callable(stored) else None
    except ValueError:  # a cycle of __wrapped__
        return None
    function = getattr(function, "__func__", function)
    return function if isinstance(function, FunctionType) else None


_NEVER = (Never, NoReturn)


def _is_typed_never(function: FunctionType) -> bool:
    returns = function.__annotations__.get("return")
    if isinstance(returns, str):  # from __future__ import annotations, or a forward reference
        return returns.strip("'\" ").rpartition(".")[2] in {"Never", "NoReturn"}
    return returns in _NEVER


@lru_cache(maxsize=256)
def _can_return(code: CodeType) -> bool:
    """Whether a function's code holds any instruction that returns or yields.

    A proof in one direction only: without one, no call comes back with a result.
    """
    import dis

    return any(
        instruction.opname.startswith(("RETURN", "YIELD", "SEND"))
        for instruction in dis.get_instructions(code)
    )


def data_free_evidence(cache: object) -> DataFreeEvidence | None:
    """Why a cache is known to hold no data, or None. ``update_and_fetch`` is not called."""
    if _registered_for_update(type(cache)):
        return DataFreeEvidence.REGISTERED
    function = _function(_static(cache, "update_and_fetch"))
    if function is None and hasattr(type(cache), "__getattr__"):
        function = _function(_read(cache, "update_and_fetch"))
    if function is None:
        return None
    if _is_typed_never(function):
        return DataFreeEvidence.TYPED
    if not _can_return(function.__code__):
        state = _read(cache, "state")
        if state is _ABSENT or state is None or (isinstance(state, (tuple, list)) and not state):
            return DataFreeEvidence.CODE
    return None


def is_typed_never(cache: object, name: str) -> bool:
    """Whether a method is typed to return ``Never``: it is there to refuse."""
    function = _function(_static(cache, name))
    return function is not None and _is_typed_never(function)


def is_data_free(cache: object) -> TypeIs[DataFreeCache]:
    """Whether a cache holds no data on purpose, so that ``update_and_fetch`` must not be called.

    True for a class whose ``update_and_fetch`` is typed to return ``Never`` or ``NoReturn``, for a
    registered class (:func:`register_data_free`; sglang's and vllm-metal's are built in), and for
    one whose ``update_and_fetch`` has no code path that returns while its ``state`` is empty.
    """
    return data_free_evidence(cache) is not None


def is_storage_backed(cache: object) -> TypeIs[StorageBackedCache]:
    """Whether ``update_and_fetch`` may be called: it is there and the cache is not data-free.

    Example:
        >>> if is_storage_backed(cache):
        ...     keys, values = cache.update_and_fetch(keys, values)
    """
    if not _has_method(cache, "update_and_fetch") or is_data_free(cache):
        return False
    function = _function(_static(cache, "update_and_fetch"))
    return function is None or _can_return(function.__code__)


# --------------------------------------------------------------------------------------------
# Other capabilities
# --------------------------------------------------------------------------------------------


def has_offset(cache: object) -> TypeIs[HasOffset[int | mx.array]]:
    """Whether a cache has a position."""
    return _has_attribute(cache, "offset")


def makes_mask(cache: object) -> TypeIs[MakesAttentionMask]:
    """Whether a cache makes the mask of an attention layer.

    Recurrent caches have a ``make_mask(N)`` of another kind (valid positions, ``(B, N)``): slots
    and no ``update_and_fetch`` tell them apart.
    """
    return _has_method(cache, "make_mask") and (
        _has_method(cache, "update_and_fetch")
        or is_data_free(cache)
        or not _has_method(cache, "__getitem__")
    )


def reads_back(cache: object) -> TypeIs[ReadsBack[Any]]:
    """Whether a cache gives its keys and values without an update."""
    return _has_method(cache, "keys_and_values")


def is_quantized(cache: object) -> bool:
    """Whether ``update_and_fetch`` returns (packed, scales, biases) triples.

    The presence of ``bits`` is what consumers dispatch on, whatever its value.
    """
    return _has_attribute(cache, "bits")


def is_opaque(cache: object) -> bool:
    """Whether ``update_and_fetch`` may return handles, over which only ``cache.attend`` attends."""
    return _has_method(cache, "attend") and is_storage_backed(cache)


def is_batched(cache: object) -> bool:
    """Whether a cache holds several sequences: padded rows, or one offset for each row."""
    if _has_attribute(cache, "left_padding") and _has_method(cache, "update_and_fetch"):
        return True
    offset = _read(cache, "offset")
    return getattr(offset, "ndim", 0) == 1


@dataclass(frozen=True)
class Capabilities:
    """What a cache offers, by the members that the contracts name."""

    class_name: str
    data_free: DataFreeEvidence | None
    storage_backed: bool
    quantized: bool
    opaque: bool
    batched: bool
    members: frozenset[str]
    """The names of ``METHODS`` and ``ATTRIBUTES`` that it has."""

    @property
    def state_dialect(self) -> str | None:
        """``"state"`` (mlx-lm 0.32), ``"state+meta_state"`` (older mlx-lm, mlx-vlm) or None."""
        if "state" not in self.members:
            return None
        return "state+meta_state" if "meta_state" in self.members else "state"


def capabilities(cache: object) -> Capabilities:
    """Probe an object without calling any method that could change it."""
    members = {name for name in METHODS if _has_method(cache, name)}
    members.update(name for name in ATTRIBUTES if _has_attribute(cache, name))
    cls = type(cache)
    return Capabilities(
        class_name=f"{cls.__module__}.{cls.__qualname__}",
        data_free=data_free_evidence(cache),
        storage_backed=is_storage_backed(cache),
        quantized=is_quantized(cache),
        opaque=is_opaque(cache),
        batched=is_batched(cache),
        members=frozenset(members),
    )
