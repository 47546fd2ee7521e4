"""A full-visibility KV cache that keeps its rows in affine quantisation."""

from __future__ import annotations

from typing import TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_chunk, check_fits, check_int, described
from reference_impl.buffers import appended, grown_capacity, joined
from reference_impl.masks import AttentionMask, attention_mask

Triple: TypeAlias = "tuple[mx.array, mx.array, mx.array]"
"""Rows in affine quantisation, as ``mx.quantize`` gives them: packed (B, H, L, D * bits / 32) in
uint32, scales and biases (B, H, L, D / group_size) in the dtype that the rows came in."""

QuantizedState: TypeAlias = "tuple[Triple | None, Triple | None, int, int, int]"
"""Keys, values, offset, group_size, bits; None for both triples when empty."""


class QuantizedKVCache:
    """Keeps every token in ``bits`` bits an element, and hands it out that way.

    Elements are quantised in groups of ``group_size`` along the head dim, each with a scale and a
    bias. A row is quantised by itself, once, when it is appended; so what is held is exactly what
    ``mx.quantize`` gives for the same rows, however they were split into appends (QNT-3).

    The attributes ``bits`` and ``group_size`` tell consumers to run attention over triples
    (QNT-1). There is no ``to_quantized``: what is quantised must not be quantised again.

    Both head dims must be multiples of ``group_size``, and the dtypes real floating ones; that is
    what ``mx.quantize`` takes (QNT-2). The two dtypes may differ, and the scales and biases keep
    them (QNT-6). Visibility, growth and aliasing are those of
    :class:`reference_impl.KVCache`.

    Args:
        group_size: elements that share a scale and a bias.
        bits: bits of an element.

    Raises:
        TypeError: ``group_size`` or ``bits`` is not an int.
        ValueError: ``mx.quantize`` does not take the pair.
    """

    def __init__(self, group_size: int = 64, bits: int = 8) -> None:
        owner = type(self).__name__
        self._group_size, self._bits = _checked_parameters(owner, group_size, bits)
        self._offset = 0
        # Keys and values; rows from _offset on are spare and hold anything. None while empty.
        self._buffers: tuple[Triple, Triple] | None = None

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self._group_size

    @property
    def bits(self) -> int:
        """Bits of an element; that it is there says that triples are handed out (QNT-1)."""
        return self._bits

    @property
    def offset(self) -> int:
        """Tokens logged, which is the position of the next one (POS-1 to POS-6).

        Setting it trims to that many tokens (POS-7).

        Raises:
            TypeError: on setting anything but an int.
            ValueError: on setting it below 0 or above the present offset.
        """
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        owner = type(self).__name__
        check_int(owner, "offset", offset, minimum=0)
        if offset > self._offset:
            raise ValueError(
                f"{owner}: offset can only be lowered, from {self._offset}, got {offset}"
            )
        self._offset = offset
        if offset == 0:
            # An empty cache owes nothing to what it once held, shapes and dtypes included (TRIM-1).
            self._buffers = None

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N tokens, as that of :class:`reference_impl.KVCache`.

        Raises:
            TypeError: N or window_size is not an int.
            ValueError: N or window_size is below 1 (MASK-11).
        """
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is not None:
            check_int(owner, "window_size", window_size, minimum=1)
        return attention_mask(N, self._offset, window=window_size, return_array=return_array)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[Triple, Triple]:
        """Append S tokens, quantised, and return all tokens held, the new ones last (UPD-1).

        An append of no tokens changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk), as the model made them.
            values: (B, H, S, Dv).

        Returns:
            Keys and values as triples of L = offset + S rows.

        Raises:
            TypeError: not an ``mx.array``, not a floating dtype, or another one than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit, or a
                head dim that is no multiple of ``group_size``.
        """
        self._check_chunk(keys, values)
        held = self._buffers
        start = self._offset
        end = start + keys.shape[2]
        new_keys, new_values = self._quantized(keys), self._quantized(values)
        if end == 0:
            return new_keys, new_values
        if held is None:
            capacity = grown_capacity(end)
            self._buffers = _joined(new_keys, capacity), _joined(new_values, capacity)
        else:
            self._buffers = (
                _appended(held[0], start, new_keys),
                _appended(held[1], start, new_values),
            )
        self._offset = end
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Triple, Triple]:
        """What the last update returned, less what was trimmed since (READ-1, READ-2).

        Raises:
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return _first_rows(keys, self._offset), _first_rows(values, self._offset)

    @property
    def state(self) -> QuantizedState:
        """The triples held, the offset and the parameters, as a snapshot (STATE-1 to STATE-6).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        if self._buffers is None:
            return None, None, 0, self._group_size, self._bits
        return *self.keys_and_values(), self._offset, self._group_size, self._bits

    @state.setter
    def state(self, state: QuantizedState) -> None:
        owner = type(self).__name__
        keys, values, offset, group_size, bits = state
        group_size, bits = _checked_parameters(owner, group_size, bits)
        check_int(owner, "state offset", offset, minimum=0)
        held = None
        rows = 0
        if keys is not None or values is not None:
            held = (
                _checked_triple(owner, "keys", keys, group_size, bits),
                _checked_triple(owner, "values", values, group_size, bits),
            )
            keys_shape, values_shape = held[0][1].shape, held[1][1].shape
            if keys_shape[:3] != values_shape[:3]:
                raise ValueError(
                    f"{owner}: values must have the (B, H, S) of keys {keys_shape[:3]}, "
                    f"got {values_shape[:3]}"
                )
            rows = keys_shape[2]
        if rows != offset or (held is not None and rows == 0):
            raise ValueError(
                f"{owner}: state must hold as many rows as its offset says, and None for no rows, "
                f"got {rows} rows for offset {offset}"
            )
        self._group_size, self._bits = group_size, bits
        self._offset = offset
        self._buffers = held

    @classmethod
    def from_state(cls, state: QuantizedState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove tokens: always True."""
        return True

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, offset)`` tokens and return their number (TRIM-1 to TRIM-4).

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
        """
        removed = min(check_int(type(self).__name__, "n", n, minimum=0), self._offset)
        self.offset = self._offset - removed
        return removed

    def size(self) -> int:
        """Tokens held (MEAS-1)."""
        return self._offset

    def empty(self) -> bool:
        """Whether no token is held (MEAS-2)."""
        return self._offset == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, spare rows included; 0 when empty (MEAS-3)."""
        keys, values = self._buffers or ((), ())
        return sum(part.nbytes for part in (*keys, *values))

    def _check_chunk(self, keys: mx.array, values: mx.array) -> None:
        owner = type(self).__name__
        check_chunk(owner, keys, values, None)
        held = self._buffers
        for index, (name, rows) in enumerate((("keys", keys), ("values", values))):
            if held is not None:
                # What the rows held looked like, as their scales still show.
                scales = held[index][1]
                batch, heads, count, groups = scales.shape
                shape = batch, heads, count, groups * self._group_size
                check_fits(owner, name, rows, shape, scales.dtype)
            elif not mx.issubdtype(rows.dtype, mx.floating):
                raise TypeError(f"{owner}: {name} must have a floating dtype, got {rows.dtype}")
            elif rows.shape[3] % self._group_size:
                raise ValueError(
                    f"{owner}: {name} must have a head dim that is a multiple of the group_size "
                    f"of {self._group_size}, got {rows.shape[3]}"
                )

    def _quantized(self, rows: mx.array) -> Triple:
        packed, scales, biases = mx.quantize(rows, group_size=self._group_size, bits=self._bits)
        return packed, scales, biases


def _joined(rows: Triple, capacity: int) -> Triple:
    packed, scales, biases = rows
    return joined([packed], capacity), joined([scales], capacity), joined([biases], capacity)


def _appended(buffers: Triple, held: int, rows: Triple) -> Triple:
    return (
        appended(buffers[0], held, rows[0]),
        appended(buffers[1], held, rows[1]),
        appended(buffers[2], held, rows[2]),
    )


def _first_rows(buffers: Triple, rows: int) -> Triple:
    packed, scales, biases = buffers
    return packed[:, :, :rows], scales[:, :, :rows], biases[:, :, :rows]


def _checked_parameters(owner: str, group_size: object, bits: object) -> tuple[int, int]:
    """The pair, if ``mx.quantize`` takes it: it knows, and the list grows with its versions."""
    group_size = check_int(owner, "group_size", group_size, minimum=1)
    bits = check_int(owner, "bits", bits, minimum=1)
    try:
        mx.quantize(mx.zeros((1, group_size)), group_size=group_size, bits=bits)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"{owner}: group_size and bits must be a pair that mx.quantize takes, "
            f"got {group_size} and {bits}"
        ) from error
    return group_size, bits


def _checked_triple(owner: str, name: str, triple: object, group_size: int, bits: int) -> Triple:
    """The triple of a state that is being restored, as new objects on the same data (REST-6)."""
    if not isinstance(triple, (tuple, list)) or len(triple) != 3:
        raise TypeError(f"{owner}: {name} must be a triple (packed, scales, biases)")
    for part in triple:
        if not isinstance(part, mx.array):
            raise TypeError(f"{owner}: {name} must be a triple of mx.array, got {described(part)}")
    packed, scales, biases = triple
    fits = scales.ndim == 4 and scales.shape == biases.shape and scales.dtype == biases.dtype
    if not fits or (
        packed.shape != (*scales.shape[:3], scales.shape[3] * group_size * bits // 32)
        or packed.dtype != mx.uint32
    ):
        raise ValueError(
            f"{owner}: {name} must be packed rows in uint32 and their scales and biases, for "
            f"group_size {group_size} and bits {bits}, got shapes {packed.shape}, {scales.shape} "
            f"and {biases.shape}"
        )
    return packed[...], scales[...], biases[...]
