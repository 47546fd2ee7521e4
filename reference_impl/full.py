"""A full-visibility KV cache: every token of one log, or of B logs of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_chunk, check_int, check_token, checked_rows
from reference_impl.buffers import appended, grown_capacity, joined
from reference_impl.masks import AttentionMask, attention_mask
from reference_impl.quantized import QuantizedKVCache

if TYPE_CHECKING:
    from reference_impl.batch import BatchKVCache

KVState: TypeAlias = "tuple[mx.array | None, mx.array | None, int]"
"""Keys (B, H, offset, Dk), values (B, H, offset, Dv), offset; (None, None, 0) when empty."""


class KVCache:
    """Keeps every token, and lets each query see its whole past: key j for query i if j <= i.

    Keys are (B, H, S, Dk) and values (B, H, S, Dv), for any B, H, Dk and Dv (Dv = 0 included) and
    any float dtype, which may differ between the two (UPD-5). The first append fixes B, H, both
    head dims and both dtypes; a later one that differs is refused (UPD-6, UPD-15). After trimming
    down to nothing the next append fixes them anew, as on a new cache.

    The rows lie in two buffers with spare rows behind them. A buffer that is full is replaced by
    one half as large again, so growth copies fewer than 3 rows per token on average, and the
    buffers take at most 1.5 times the tokens they were made for plus a fixed number of rows
    (UPD-11). Trimming keeps them, down to the first token.

    No array that came in or went out is ever written to (UPD-8, UPD-9, STATE-6, REST-6), no method
    evaluates anything (UPD-12), and a call that raises has changed nothing (UPD-10).

    Args:
        capacity: tokens to reserve room for at the first append, where their number is known
            beforehand. It changes no result, limits nothing, and is not part of ``state``.

    Raises:
        TypeError: ``capacity`` is neither None nor an int.
        ValueError: ``capacity`` is below 1 (DEC-4).
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        if capacity is not None:
            check_int(type(self).__name__, "capacity", capacity, minimum=1)
        self._reserved = capacity or 0
        self._offset = 0
        # Keys and values; rows from _offset on are spare and hold anything. None while empty.
        self._buffers: tuple[mx.array, mx.array] | None = None

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
        """The mask for an append of N tokens, asked before it; changes nothing (MASK-7).

        Args:
            N: number of new tokens.
            return_array: give an array instead of ``"causal"`` (MASK-5).
            window_size: tokens that a query sees, itself included; None for all (MASK-6).

        Returns:
            None, ``"causal"`` or a boolean array (N, offset + N); see
            :func:`reference_impl.masks.attention_mask`.

        Raises:
            TypeError: N or window_size is not an int.
            ValueError: N or window_size is below 1 (MASK-11).
        """
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is not None:
            check_int(owner, "window_size", window_size, minimum=1)
        return attention_mask(N, self._offset, window=window_size, return_array=return_array)

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S tokens and return all tokens held, the new ones last (UPD-1, UPD-2).

        An append of no tokens changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Returns:
            Keys (B, H, offset + S, Dk) and values (B, H, offset + S, Dv), dtypes as they came.

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit.
        """
        check_chunk(type(self).__name__, keys, values, self._buffers)
        if self._offset + keys.shape[2] == 0:
            return keys[...], values[...]
        self._append(keys, values)
        return self.keys_and_values()

    def write_token(self, key: mx.array, value: mx.array, /) -> None:
        """Append one token, and fetch nothing (DEC-1); a decode step that batches the attention of
        several caches writes to each, then reads from each with :meth:`get_kv`.

        Args:
            key: (B, H, 1, Dk).
            value: (B, H, 1, Dv).

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: not one token, or a rank, batch size, head count or head dim that does not
                fit.
        """
        check_token(type(self).__name__, key, value, self._buffers)
        self._append(key, value)

    def get_kv(self, window: int | None = None) -> tuple[mx.array, mx.array]:
        """The last ``min(offset, window)`` tokens in temporal order, or all (DEC-2).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv).

        Raises:
            TypeError: ``window`` is neither None nor an int.
            ValueError: ``window`` is below 1 (DEC-6).
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if window is not None:
            check_int(type(self).__name__, "window", window, minimum=1)
        keys, values = self.keys_and_values()
        if window is None or window >= self._offset:
            return keys, values
        return keys[:, :, -window:], values[:, :, -window:]

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last update returned, less what was trimmed since (READ-1, READ-2).

        Returns:
            Keys (B, H, offset, Dk) and values (B, H, offset, Dv).

        Raises:
            RuntimeError: the cache is empty, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return keys[:, :, : self._offset], values[:, :, : self._offset]

    def reset(self) -> None:
        """Forget everything: the cache is as a new one, shapes and dtypes included (DEC-3)."""
        self.offset = 0

    @property
    def state(self) -> KVState:
        """The tokens held and the offset, as a snapshot (STATE-1 to STATE-4, STATE-6).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose shapes do not fit each other or the offset.
        """
        if self._buffers is None:
            return None, None, 0
        return *self.keys_and_values(), self._offset

    @state.setter
    def state(self, state: KVState) -> None:
        owner = type(self).__name__
        keys, values, offset = state
        check_int(owner, "state offset", offset, minimum=0)
        held = checked_rows(owner, keys, values)
        rows = 0 if held is None else held[0].shape[2]
        if rows != offset or (held is not None and rows == 0):
            raise ValueError(
                f"{owner}: state must hold as many rows as its offset says, and None for no rows, "
                f"got {rows} rows for offset {offset}"
            )
        self._reserved = 0
        self._offset = offset
        self._buffers = held

    @classmethod
    def from_state(cls, state: KVState) -> Self:
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

    def to_quantized(self, *, group_size: int = 64, bits: int = 8) -> QuantizedKVCache:
        """The same tokens at the same offset in a quantised cache; changes nothing here (QNT-5).

        Args:
            group_size: elements that share a scale and a bias; both head dims must be multiples.
            bits: bits of an element.

        Raises:
            TypeError: an argument is not an int, or the tokens held are of no floating dtype.
            ValueError: ``mx.quantize`` does not take the pair, or not for these head dims.
        """
        quantized = QuantizedKVCache(group_size, bits)
        if self._buffers is not None:
            quantized.update_and_fetch(*self.keys_and_values())
        return quantized

    @classmethod
    def merge(cls, caches: Sequence[KVCache], /) -> BatchKVCache:
        """A batch of the rows of ``caches``, from which ``extract`` takes them out again (BATCH-2).

        See :meth:`reference_impl.BatchKVCache.merge`.
        """
        from reference_impl.batch import BatchKVCache  # it needs this module

        return BatchKVCache.merge(caches)

    def size(self) -> int:
        """Tokens held (MEAS-1)."""
        return self._offset

    def empty(self) -> bool:
        """Whether no token is held (MEAS-2)."""
        return self._offset == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, spare rows included (MEAS-3)."""
        return 0 if self._buffers is None else sum(buffer.nbytes for buffer in self._buffers)

    def _append(self, keys: mx.array, values: mx.array) -> None:
        held = self._buffers
        start = self._offset
        end = start + keys.shape[2]
        if held is None:
            capacity = max(grown_capacity(end), self._reserved)
            self._buffers = joined([keys], capacity), joined([values], capacity)
        else:
            self._buffers = appended(held[0], start, keys), appended(held[1], start, values)
        self._offset = end
