"""A cache of caches, for layers that need several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_int
from reference_impl.batch import BatchKVCache
from reference_impl.batch_window import BatchSlidingWindowKVCache
from reference_impl.chunk import ChunkedKVCache
from reference_impl.full import KVCache
from reference_impl.quantized import QuantizedKVCache
from reference_impl.recurrent import RecurrentCache
from reference_impl.window import SlidingWindowKVCache

CompositeState: TypeAlias = "tuple[list[str] | None, list[Any] | None]"
"""Names of the child classes, states of the children; (None, None) without children."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_restorable: dict[str, Callable[[Any], Any]] = {}


def register_child(cls: type[T]) -> type[T]:
    """Allow the children of a restored :class:`CompositeCache` to be of this class.

    A state names the class of each child as ``module:QualifiedName``. The name is looked up among
    the registered classes and nowhere else: nothing is ever imported because a file says so, and a
    class of the same simple name in another package is another class. This works as a decorator.

    Raises:
        TypeError: ``cls`` is no class, or has no ``from_state``.
    """
    if not isinstance(cls, type) or not callable(getattr(cls, "from_state", None)):
        raise TypeError(f"register_child: cls must be a class with from_state, got {cls!r}")
    _restorable[_name_of(cls)] = cls.from_state  # type: ignore[attr-defined]
    return cls


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


class _Forwarded(Generic[F]):
    """A method that an object has only while all its children have it (REF-1)."""

    def __init__(self, method: F) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: CompositeCache | None, owner: type) -> Any:
        if instance is not None:
            for child in instance.caches:
                if not hasattr(child, self._name):
                    raise AttributeError(
                        f"{type(instance).__name__} has no {self._name!r}, because its child "
                        f"{type(child).__name__} has none"
                    )
        return self._method.__get__(instance, owner)


def _forwarded(method: F) -> F:
    return cast(F, _Forwarded(method))


class CompositeCache:
    """Holds several caches for one layer, which takes each by its index.

    What holds for all of them is forwarded: trimming, state, measures, batches. The position, the
    mask and the tokens are each child's own, so there is no ``offset``, ``make_mask``,
    ``update_and_fetch`` or ``bits`` here (COMP-3); nor an ``advance``, which the layer calls on the
    child that it is meant for. There is no ``__len__`` either, which would make a cache without
    children falsy (STATE-5).

    ``merge``, ``extract``, ``filter``, ``extend``, ``prepare`` and ``finalize`` are there while all
    children have them, so that ``hasattr`` tells the truth (BATCH-7, REF-1).

    Args:
        caches: the children, any caches with a ``state``; none is legal (COMP-4).

    Raises:
        TypeError: one of them is no cache.
    """

    def __init__(self, *caches: Any) -> None:
        self._caches = _checked_children(type(self).__name__, caches)

    def __getitem__(self, index: int, /) -> Any:
        """The child at an index.

        Raises:
            TypeError: ``index`` is not an int.
            IndexError: there is no such child; iteration ends by this.
        """
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"{type(self).__name__}: index must be an int, got {index!r}")
        try:
            return self._caches[index]
        except IndexError:
            raise IndexError(
                f"{type(self).__name__}: index must be one of {len(self._caches)} children, "
                f"got {index}"
            ) from None

    @property
    def caches(self) -> tuple[Any, ...]:
        """The children. They may be replaced, for example by quantised ones."""
        return self._caches

    @caches.setter
    def caches(self, caches: Sequence[Any]) -> None:
        self._caches = _checked_children(type(self).__name__, caches)

    def is_trimmable(self) -> bool:
        """Whether all children are trimmable (COMP-1); True without children."""
        return all(
            hasattr(child, "is_trimmable") and child.is_trimmable() for child in self._caches
        )

    def trim(self, n: int) -> int:
        """Remove the newest tokens of all children, the same number of each (COMP-1).

        Returns:
            That number: n, or all that the child with the fewest tokens has. 0, and nothing is
            changed, if one of them cannot be trimmed, or there is none.

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
            RuntimeError: a child is trimmable and does not remove what it was asked to.
        """
        owner = type(self).__name__
        check_int(owner, "n", n, minimum=0)
        most = _tokens_to_trim(self) if self.is_trimmable() else None
        if most is None:
            return 0
        n = min(n, most)
        for child in self._caches:
            removed = child.trim(n)
            if removed != n and _tokens_to_trim(child) is not None:
                raise RuntimeError(
                    f"{owner}: trim({n}) removed {removed} tokens from {type(child).__name__}; the "
                    "children are out of step"
                )
        return n

    @property
    def state(self) -> CompositeState:
        """Classes and states of the children (STATE-1 to STATE-4, COMP-2); a snapshot if theirs
        are (STATE-6).

        Setting it replaces the children by new ones (REST-8), and needs no ``__init__`` to have run
        (REST-2). Their classes must be registered: see :func:`register_child`.

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other, or which names a
                class that is not registered.
        """
        if not self._caches:
            return None, None
        names = [_name_of(type(child)) for child in self._caches]
        return names, [child.state for child in self._caches]

    @state.setter
    def state(self, state: CompositeState) -> None:
        owner = type(self).__name__
        names, states = state
        if names is None and states is None:
            names, states = [], []
        if not isinstance(names, (list, tuple)) or not isinstance(states, (list, tuple)):
            raise TypeError(f"{owner}: state must hold a list of names and a list of states")
        if len(names) != len(states):
            raise ValueError(
                f"{owner}: state must hold a name for each child state, got {len(names)} and "
                f"{len(states)}"
            )
        for name in names:
            if name not in _restorable:
                raise ValueError(
                    f"{owner}: state must name registered classes, got {name!r}; see register_child"
                )
        children = [
            _restorable[name](child_state) for name, child_state in zip(names, states, strict=True)
        ]
        self._caches = tuple(children)

    @classmethod
    def from_state(cls, state: CompositeState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    @property
    def size(self) -> Callable[[], int]:
        """``size()``: tokens held by the child that holds most (MEAS-1); 0 without children.

        Children that have no size, as recurrent ones, do not count. If no child has one, there is
        none here: it would have to be wrong.
        """
        sizes = [child.size for child in self._caches if hasattr(child, "size")]
        if self._caches and not sizes:
            raise AttributeError(
                f"{type(self).__name__} has no 'size', because none of its children has one"
            )
        return lambda: max((size() for size in sizes), default=0)

    def empty(self) -> bool:
        """Whether all children are empty (MEAS-2, COMP-4)."""
        return all(child.empty() for child in self._caches)

    @property
    def nbytes(self) -> int:
        """Bytes of all children (MEAS-3)."""
        return sum(getattr(child, "nbytes", 0) for child in self._caches)

    @_forwarded
    @classmethod
    def merge(cls, caches: Sequence[Self], /) -> Self:
        """A composite of merged children; ``caches`` are left as they are (BATCH-8).

        Raises:
            TypeError: one of them is of another class, or a child differs in its class.
            ValueError: there is none, or they differ in the number of children.
        """
        owner = cls.__name__
        if not caches:
            raise ValueError(f"{owner}: caches must hold at least one, got none")
        for cache in caches:
            _check_alike(owner, caches[0], cache)
        merged = cls.__new__(cls)
        merged._caches = tuple(
            children[0].merge(list(children))
            for children in zip(*(cache._caches for cache in caches), strict=True)
        )
        return merged

    @_forwarded
    def extend(self, other: Self, /) -> None:
        """Add the rows of each child of ``other`` to the child here.

        Raises:
            TypeError: ``other`` is of another class, or a child differs in its class.
            ValueError: it differs in the number of children.
        """
        _check_alike(type(self).__name__, self, other)
        for child, others in zip(self._caches, other._caches, strict=True):
            child.extend(others)

    @_forwarded
    def filter(self, keep: Sequence[int] | mx.array, /) -> None:
        """Keep these rows of every child, in this order; what the first child refuses is refused
        before anything changed."""
        for child in self._caches:
            child.filter(keep)

    @_forwarded
    def extract(self, index: int, /) -> Self:
        """One row of every child, in a composite of its own."""
        extracted = type(self).__new__(type(self))
        extracted._caches = tuple(child.extract(index) for child in self._caches)
        return extracted

    @_forwarded
    def prepare(self, **padding: Sequence[int] | mx.array | None) -> None:
        """Announce padding to every child; see theirs for the keywords."""
        for child in self._caches:
            child.prepare(**padding)

    @_forwarded
    def finalize(self) -> None:
        """End the padding at the right in every child."""
        for child in self._caches:
            child.finalize()


def _checked_children(owner: str, caches: Sequence[Any]) -> tuple[Any, ...]:
    for cache in caches:
        if isinstance(cache, type) or not hasattr(cache, "state"):
            raise TypeError(f"{owner}: caches must be objects with a state, got {cache!r}")
    return tuple(caches)


def _tokens_to_trim(cache: Any) -> int | None:
    """Tokens that a trimmable cache can remove; None of a composite that can never hold any."""
    if isinstance(cache, CompositeCache):
        limits = [_tokens_to_trim(child) for child in cache.caches]
        return min((limit for limit in limits if limit is not None), default=None)
    offset = getattr(cache, "offset", None)
    return offset if isinstance(offset, int) else cast(int, cache.size())


def _check_alike(owner: str, first: CompositeCache, other: CompositeCache) -> None:
    """Check that two composites have children of the same classes."""
    if type(other) is not type(first):
        raise TypeError(f"{owner}: caches must all be {owner}, got {type(other).__name__}")
    classes = [type(child).__name__ for child in first.caches]
    others = [type(child).__name__ for child in other.caches]
    if len(others) != len(classes):
        raise ValueError(
            f"{owner}: caches must have {len(classes)} children each, got {len(others)}"
        )
    if [type(child) for child in first.caches] != [type(child) for child in other.caches]:
        raise TypeError(f"{owner}: caches must have children {classes} each, got {others}")


for _cls in (
    BatchKVCache,
    BatchSlidingWindowKVCache,
    ChunkedKVCache,
    CompositeCache,
    KVCache,
    QuantizedKVCache,
    RecurrentCache,
    SlidingWindowKVCache,
):
    register_child(_cls)
