"""Stored copies of the caches of a request."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import mlx.core as mx

from reference_impl.arguments import check_int, checked_ints


class SnapshotStore:
    """Snapshots of layer caches by index, for caches whose ``state`` can be read and assigned.

    What is stored are copies of the arrays, evaluated at once: a state may alias buffers that its
    cache goes on to write to, and a graph that is not evaluated would keep the source alive. Each
    restore hands out copies again, so that no cache writes to the snapshot (SNAP-1). ``state``
    holds the position, and replaces everything in the cache that it is assigned to (SNAP-2,
    REST-8); mlx-lm's older ``meta_state`` is carried along where a cache has it.
    """

    def __init__(self) -> None:
        self._snapshots: dict[int, dict[int, tuple[type, Any, Any]]] = {}

    def store_cache(self, index: int, cache: Sequence[Any], layers: Iterable[int], /) -> None:
        """Keep a copy of these layers under ``index``, in place of what was there.

        Args:
            index: any int from 0 up.
            cache: one cache for each layer.
            layers: which of them to store.

        Raises:
            TypeError: ``index`` or a layer is not an int, or a layer's cache has no state that can
                be assigned; what was stored stays.
            ValueError: ``index`` or a layer is negative, or there is no such layer.
        """
        owner = type(self).__name__
        check_int(owner, "index", index, minimum=0)
        stored = {}
        for layer in layers:
            held = self._layer(cache, layer)
            if not hasattr(held, "state"):
                raise TypeError(f"{owner}: layer {layer}, a {type(held).__name__}, has no state")
            meta = _copied(getattr(held, "meta_state", None))
            stored[layer] = type(held), _copied(held.state), meta
        mx.eval([(state, meta) for _, state, meta in stored.values()])
        self._snapshots[index] = stored

    def restore_cache(self, index: int, cache: Sequence[Any], /) -> bool:
        """Put the stored layers into these caches, whatever they hold.

        Returns:
            Whether anything is stored under ``index``; if not, nothing was done.

        Raises:
            TypeError: a layer's cache is of another class than the one that was stored; no layer
                was changed then.
            ValueError: ``index`` is negative, or there is no such layer.
        """
        owner = type(self).__name__
        check_int(owner, "index", index, minimum=0)
        if index not in self._snapshots:
            return False
        snapshot = self._snapshots[index]
        for layer, (cls, _, _) in snapshot.items():
            held = self._layer(cache, layer)
            if type(held) is not cls:
                raise TypeError(
                    f"{owner}: layer {layer} must be a {cls.__name__}, as the stored one, "
                    f"got a {type(held).__name__}"
                )
        for layer, (_, state, meta) in snapshot.items():
            cache[layer].state = _copied(state)
            if meta is not None:
                cache[layer].meta_state = _copied(meta)
        return True

    def has_snapshot(self, index: int, /) -> bool:
        """Whether anything is stored under ``index``."""
        return index in self._snapshots

    def free(self, index: int, /) -> None:
        """Forget what is stored under ``index``, if anything."""
        self._snapshots.pop(index, None)

    def transaction(
        self,
        caches: list[Any],
        tokens: Sequence[int],
        forward: Callable[[Sequence[Any], Sequence[int]], Any],
        /,
    ) -> Transaction:
        """A transaction over ``caches``; see :class:`Transaction`."""
        return Transaction(caches, tokens, forward)

    def _layer(self, cache: Sequence[Any], layer: int) -> Any:
        owner = type(self).__name__
        check_int(owner, "layer", layer, minimum=0)
        if layer >= len(cache):
            raise ValueError(f"{owner}: layer must be below {len(cache)}, got {layer}")
        return cache[layer]


class Transaction:
    """Proposed tokens for the caches of a request: verified on copies, then taken or dropped.

    No cache need be trimmable for that: :meth:`commit` feeds the caches the accepted tokens once
    more, and nothing has to be taken back (SNAP-3). A commit that fails, be it at the evaluation,
    puts back the state from before.

    Args:
        caches: one cache for each layer, each with a state that can be assigned.
        tokens: the proposed tokens, at least one.
        forward: ``forward(caches, tokens)`` feeds tokens to all caches, as the model does.

    Raises:
        TypeError: a token is not an int.
        ValueError: no tokens, or a negative one.
    """

    def __init__(
        self,
        caches: list[Any],
        tokens: Sequence[int],
        forward: Callable[[Sequence[Any], Sequence[int]], Any],
    ) -> None:
        owner = type(self).__name__
        self._caches = caches
        self._tokens = checked_ints(owner, "tokens", tokens, minimum=0)
        if not self._tokens:
            raise ValueError(f"{owner}: tokens must have at least one, got {tokens!r}")
        self._forward = forward
        self._stage: Literal["new", "begun", "over"] = "new"

    def begin(self) -> list[Any]:
        """Copies of the caches, to verify the proposed tokens on.

        Raises:
            RuntimeError: it began before.
        """
        self._must_be("new", "begin")
        copies = copy.deepcopy(self._caches)
        self._stage = "begun"
        return copies

    def commit(self, count: int, /) -> Any:
        """Feed the first ``count`` proposed tokens to the caches, and evaluate their states.

        Returns:
            What ``forward`` returned; None for no tokens.

        Raises:
            RuntimeError: not begun, or over.
            TypeError: ``count`` is not an int.
            ValueError: ``count`` is negative, or above the number of proposed tokens.
            Exception: what ``forward`` raised. The caches are as before then, and it is over.
        """
        owner = type(self).__name__
        self._must_be("begun", "commit")
        if check_int(owner, "count", count, minimum=0) > len(self._tokens):
            raise ValueError(f"{owner}: count must be at most {len(self._tokens)}, got {count}")
        before = SnapshotStore()
        before.store_cache(0, self._caches, range(len(self._caches)))
        self._stage = "over"
        if count == 0:
            return None
        try:
            result = self._forward(self._caches, self._tokens[:count])
            mx.eval([held.state for held in self._caches])
        except BaseException:
            before.restore_cache(0, self._caches)
            raise
        return result

    def abort(self) -> None:
        """Leave the caches as they are.

        Raises:
            RuntimeError: not begun, or over.
        """
        self._must_be("begun", "abort")
        self._stage = "over"

    def _must_be(self, stage: str, call: str) -> None:
        if self._stage != stage:
            told = {"new": "has not begun", "begun": "has begun already", "over": "is over"}
            raise RuntimeError(f"{type(self).__name__}.{call}: it {told[self._stage]}")


def _copied(tree: Any) -> Any:
    """The tree with its arrays copied."""
    if isinstance(tree, mx.array):
        return mx.array(tree)
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_copied(value) for value in tree)
    return tree
