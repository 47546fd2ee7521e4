"""Keys and values of many requests in one store, and the cache of one request over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from reference_impl.arguments import check_chunk, check_int, checked_ints, described
from reference_impl.full import KVCache, KVState
from reference_impl.masks import AttentionMask, attention_mask


class KVPool:
    """One row for each slot and layer: keys (n_kv_heads, head_dim), values (n_kv_heads, value_dim).

    A scheduler hands out the slots 1 to ``slots - 1``; slot 0 is padding and holds no token
    (POOL-2). All layers have the same sizes and one dtype. Slots are read when a method is called,
    to refuse wrong ones; of keys and values nothing is evaluated.

    A write makes new arrays, so what :meth:`get_kv` gave earlier, evaluated or not, never changes.

    Args:
        slots: rows of each layer, slot 0 included.
        layers: layers that store here.
        n_kv_heads: heads of keys and values.
        head_dim: elements of a key.
        value_dim: elements of a value; None for ``head_dim``.
        dtype: dtype of keys and values.

    Raises:
        TypeError: a size is not an int, or ``dtype`` is no floating dtype.
        ValueError: a size is below 1, ``slots`` below 2.
    """

    def __init__(
        self,
        slots: int,
        layers: int,
        n_kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        dtype: mx.Dtype = mx.float16,
    ) -> None:
        owner = type(self).__name__
        self.slots = check_int(owner, "slots", slots, minimum=2)
        self.layers = check_int(owner, "layers", layers, minimum=1)
        self.n_kv_heads = check_int(owner, "n_kv_heads", n_kv_heads, minimum=1)
        self.head_dim = check_int(owner, "head_dim", head_dim, minimum=1)
        value_dim = head_dim if value_dim is None else value_dim
        self.value_dim = check_int(owner, "value_dim", value_dim, minimum=1)
        if not isinstance(dtype, mx.Dtype) or not mx.issubdtype(dtype, mx.floating):
            raise TypeError(f"{owner}: dtype must be a floating dtype, got {dtype!r}")
        self.dtype = dtype
        self._keys = [mx.zeros((slots, n_kv_heads, head_dim), dtype) for _ in range(layers)]
        self._values = [mx.zeros((slots, n_kv_heads, value_dim), dtype) for _ in range(layers)]

    @property
    def nbytes(self) -> int:
        """Bytes of all slots of all layers."""
        return sum(buffer.nbytes for buffer in [*self._keys, *self._values])

    def set_kv(
        self, layer: int, slots: mx.array | Sequence[int], keys: mx.array, values: mx.array, /
    ) -> None:
        """Write S tokens to S slots of a layer (POOL-1).

        Args:
            layer: index of the layer.
            slots: S different slots from 1 up, a list or an integer array of one axis.
            keys: (S, n_kv_heads, head_dim), of the dtype of the pool.
            values: (S, n_kv_heads, value_dim), of the dtype of the pool.

        Raises:
            TypeError: an argument of another type or dtype.
            ValueError: a layer or slot that does not exist, slot 0, a slot that is named twice, or
                another shape; nothing was written then (POOL-2).
        """
        owner = type(self).__name__
        layer = self._checked_layer(layer)
        numbers = self._checked_slots(slots, minimum=1)
        if len({*numbers}) < len(numbers):
            raise ValueError(f"{owner}: slots must differ from each other, got {numbers}")
        for name, rows, width in (
            ("keys", keys, self.head_dim),
            ("values", values, self.value_dim),
        ):
            if not isinstance(rows, mx.array):
                raise TypeError(f"{owner}: {name} must be an mx.array, got {described(rows)}")
            expected = (len(numbers), self.n_kv_heads, width)
            if rows.shape != expected:
                raise ValueError(f"{owner}: {name} must have shape {expected}, got {rows.shape}")
            if rows.dtype != self.dtype:
                raise TypeError(
                    f"{owner}: {name} must have the dtype of the pool, {self.dtype}, "
                    f"got {rows.dtype}"
                )
        if numbers:
            self._keys[layer] = _scattered(self._keys[layer], numbers, keys)
            self._values[layer] = _scattered(self._values[layer], numbers, values)

    def get_kv(self, layer: int, slots: mx.array | Sequence[int], /) -> tuple[mx.array, mx.array]:
        """The tokens in S slots of a layer, in that order (POOL-1); slot 0 reads as zeros.

        Returns:
            Keys (S, n_kv_heads, head_dim) and values (S, n_kv_heads, value_dim).

        Raises:
            TypeError: an argument of another type.
            ValueError: a layer or slot that does not exist.
        """
        layer = self._checked_layer(layer)
        index = mx.array(self._checked_slots(slots, minimum=0), mx.int32)
        return self._keys[layer][index], self._values[layer][index]

    def backed_cache(
        self, layer: int, slots: mx.array | Sequence[int], prefix_len: int, /
    ) -> PoolBackedKVCache:
        """The cache of a request whose first ``prefix_len`` tokens lie in the first slots.

        See :class:`PoolBackedKVCache`, also for what it raises.
        """
        return PoolBackedKVCache(self, layer, slots, prefix_len)

    def _checked_layer(self, layer: object) -> int:
        owner = type(self).__name__
        number = check_int(owner, "layer", layer, minimum=0)
        if number >= self.layers:
            raise ValueError(f"{owner}: layer must be below {self.layers}, got {number}")
        return number

    def _checked_slots(self, slots: object, *, minimum: int) -> list[int]:
        owner = type(self).__name__
        numbers = checked_ints(owner, "slots", slots, minimum=minimum)
        for number in numbers:
            if number >= self.slots:
                raise ValueError(f"{owner}: slots must be below {self.slots}, got {number}")
        return numbers


class PoolBackedKVCache:
    """A full-visibility cache of one sequence that begins with tokens of a pool.

    The first update reads the prefix out of the pool and keeps it with the new tokens in a buffer
    of the cache's own; from then on the pool may change (POOL-4). Until then the cache holds no
    rows, and the slots of its prefix must stay as they are. Any number of updates follows (POOL-3).
    The pool is never written: the owner of the slots copies new tokens there.

    ``copy.deepcopy`` shares the pool (COPY-2). A pickle would have to carry the pool to another
    process, so what is pickled is a :class:`KVCache` with the same tokens.

    Args:
        pool: where the prefix lies.
        layer: its layer there.
        slots: the slots of the sequence, at least ``prefix_len``.
        prefix_len: tokens of the prefix; the offset begins there.

    Raises:
        TypeError: an argument of another type.
        ValueError: fewer slots than ``prefix_len``, or a layer or slot that does not exist, slot 0
            included.
    """

    def __init__(
        self, pool: KVPool, layer: int, slots: mx.array | Sequence[int], prefix_len: int
    ) -> None:
        owner = type(self).__name__
        if not isinstance(pool, KVPool):
            raise TypeError(f"{owner}: pool must be a KVPool, got {described(pool)}")
        check_int(owner, "prefix_len", prefix_len, minimum=0)
        self._layer = pool._checked_layer(layer)
        numbers = pool._checked_slots(slots, minimum=1)
        if len(numbers) < prefix_len:
            raise ValueError(
                f"{owner}: prefix_len must be at most the {len(numbers)} slots, got {prefix_len}"
            )
        self._pool = pool
        self._prefix = numbers[:prefix_len]
        # The prefix and all that was appended; None until the first update.
        self._own: KVCache | None = None

    @property
    def offset(self) -> int:
        """Position of the next token. Setting it trims to that many tokens (POS-7).

        Raises:
            TypeError: on setting anything but an int.
            ValueError: on setting it below 0 or above the present offset.
        """
        return len(self._prefix) if self._own is None else self._own.offset

    @offset.setter
    def offset(self, offset: int) -> None:
        if self._own is not None:
            self._own.offset = offset
            return
        owner = type(self).__name__
        check_int(owner, "offset", offset, minimum=0)
        if offset > len(self._prefix):
            raise ValueError(
                f"{owner}: offset can only be lowered, from {len(self._prefix)}, got {offset}"
            )
        self._prefix = self._prefix[:offset]

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N tokens, as :meth:`KVCache.make_mask`."""
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is not None:
            check_int(owner, "window_size", window_size, minimum=1)
        return attention_mask(N, self.offset, window=window_size, return_array=return_array)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S tokens and return all, those of the prefix first.

        Rows of the pool are cast to the dtype of the first chunk (POOL-5).

        Args:
            keys: (1, n_kv_heads, S, head_dim).
            values: (1, n_kv_heads, S, value_dim).

        Returns:
            Keys (1, n_kv_heads, offset + S, head_dim) and values likewise, dtypes as they came.

        Raises:
            TypeError: not an ``mx.array``, or another dtype than in the update before.
            ValueError: sizes that are not those of the pool.
        """
        if self._own is not None:
            return self._own.update_and_fetch(keys, values)
        owner, pool = type(self).__name__, self._pool
        check_chunk(owner, keys, values, None)
        for name, rows, width in (
            ("keys", keys, pool.head_dim),
            ("values", values, pool.value_dim),
        ):
            expected = (1, pool.n_kv_heads, rows.shape[2], width)
            if rows.shape != expected:
                raise ValueError(f"{owner}: {name} must have shape {expected}, got {rows.shape}")
        own = self._loaded(keys.dtype, values.dtype)
        result = own.update_and_fetch(keys, values)
        self._own = own
        return result

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """All tokens, read from the pool as long as nothing was appended (READ-1).

        Raises:
            RuntimeError: the cache is empty.
        """
        if self.offset == 0:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        return self._current().keys_and_values()

    @property
    def state(self) -> KVState:
        """The tokens and the offset, as :attr:`KVCache.state`; there is no way back from it, for
        it names no pool."""
        return self._current().state

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove tokens: always True."""
        return True

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, offset)`` tokens, of the prefix too, and return their number.

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative.
        """
        removed = min(check_int(type(self).__name__, "n", n, minimum=0), self.offset)
        self.offset -= removed
        return removed

    def to_kv_cache(self) -> KVCache:
        """A cache of the same tokens that has nothing to do with the pool; changes nothing here."""
        return KVCache.from_state(self.state)

    def size(self) -> int:
        """Tokens that the next query sees (MEAS-1)."""
        return self.offset

    def empty(self) -> bool:
        """Whether there are none (MEAS-2)."""
        return self.offset == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the cache's own buffers; the prefix is the pool's until the first update."""
        return 0 if self._own is None else self._own.nbytes

    def __deepcopy__(self, memo: dict[int, Any]) -> PoolBackedKVCache:
        copied = type(self).__new__(type(self))
        copied._pool, copied._layer = self._pool, self._layer
        copied._prefix = list(self._prefix)
        copied._own = None if self._own is None else KVCache.from_state(self._own.state)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return KVCache.from_state, (self.state,)

    def _current(self) -> KVCache:
        if self._own is not None:
            return self._own
        return self._loaded(self._pool.dtype, self._pool.dtype)

    def _loaded(self, key_dtype: mx.Dtype, value_dtype: mx.Dtype) -> KVCache:
        """A cache of its own with the tokens of the prefix."""
        own = KVCache()
        if self._prefix:
            keys, values = self._pool.get_kv(self._layer, self._prefix)
            own.update_and_fetch(
                keys.transpose(1, 0, 2)[None].astype(key_dtype),
                values.transpose(1, 0, 2)[None].astype(value_dtype),
            )
        return own


def _scattered(buffer: mx.array, slots: list[int], rows: mx.array) -> mx.array:
    """``buffer`` with ``rows`` in these slots, as a new array object."""
    buffer = buffer[...]
    buffer[mx.array(slots, mx.int32)] = rows
    return buffer
