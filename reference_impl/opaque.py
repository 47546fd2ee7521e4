"""A KV cache that keeps its rows in another basis, and owns the attention over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_chunk
from reference_impl.full import KVCache, KVState
from reference_impl.masks import AttentionMask


@dataclass(frozen=True)
class RotatedRows:
    """A handle: retained keys, or values, that only their cache can use.

    It is no array, and has none of an array's operations, so that code that takes it for one fails
    at once (OPQ-1).
    """

    rotated: mx.array
    """The rows (B, H, L, D) in the basis of the cache."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, L, D), by which models cut a mask (OPQ-4)."""
        return self.rotated.shape


class RotatedKVCache:
    """Keeps every token, rotated by a Hadamard matrix, and attends over them itself.

    Caches of few bits rotate rows before they quantise them, because a rotation spreads outliers
    over all elements. This one stops after the rotation: it shows what such a cache owes. In the
    rotated basis a row looks like any other and attention by the usual kernel would run, and be
    wrong; so what :meth:`update_and_fetch` returns are handles (OPQ-3), and :meth:`attend` is the
    way to use them (OPQ-2).

    A rotation R leaves scores as they are if queries are rotated, too: (R q) (R k) = q k. Values
    come out of attention rotated, and are turned back.

    Position, masks, growth, trim, state and measures are those of the
    :class:`reference_impl.KVCache` in which the rotated rows lie. It has none of that
    cache's ``get_kv``, ``keys_and_values``, ``to_quantized`` and ``merge``, whose rows would be
    taken for the tokens.

    Head dims are those that ``mx.hadamard_transform`` takes: m * 2^k with m one of 1, 12, 20, 28.
    """

    def __init__(self) -> None:
        self._rows = KVCache()

    @property
    def offset(self) -> int:
        """Tokens logged, which is the position of the next one (POS-1 to POS-6)."""
        return self._rows.offset

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask for an append of N tokens; see :meth:`reference_impl.KVCache.make_mask`."""
        return self._rows.make_mask(N, return_array=return_array, window_size=window_size)

    def update_and_fetch(
        self, keys: mx.array, values: mx.array, /
    ) -> tuple[RotatedRows, RotatedRows]:
        """Append S tokens and return handles of all tokens held, the new ones last.

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit, or a
                head dim that cannot be rotated.
        """
        owner = type(self).__name__
        check_chunk(owner, keys, values, self._rows._buffers)
        for name, rows in (("keys", keys), ("values", values)):
            if not mx.issubdtype(rows.dtype, mx.floating):
                raise TypeError(f"{owner}: {name} must be of a floating dtype, got {rows.dtype}")
            _check_head_dim(owner, name, rows.shape[3])
        held = self._rows.update_and_fetch(_rotated(keys), _rotated(values))
        return RotatedRows(held[0]), RotatedRows(held[1])

    def attend(
        self,
        queries: mx.array,
        keys: RotatedRows,
        values: RotatedRows,
        /,
        *,
        scale: float,
        mask: AttentionMask = None,
    ) -> mx.array:
        """Attention over the rows behind two handles (OPQ-2); changes nothing.

        Args:
            queries: (B, n_heads, N, Dk), n_heads a multiple of the H of the keys.
            keys, values: what :meth:`update_and_fetch` returned.
            scale: factor of the scores.
            mask: for N queries and the L keys behind the handles.

        Returns:
            (B, n_heads, N, Dv), in the dtype of the queries.

        Raises:
            TypeError: ``keys`` or ``values`` is no handle.
        """
        for name, rows in (("keys", keys), ("values", values)):
            if not isinstance(rows, RotatedRows):
                raise TypeError(
                    f"{type(self).__name__}.attend: {name} must be what update_and_fetch returned, "
                    f"got {type(rows).__name__}"
                )
        rotated = mx.fast.scaled_dot_product_attention(
            _rotated(queries), keys.rotated, values.rotated, scale=scale, mask=mask
        )
        return rotated @ _rotation(rotated.shape[3], rotated.dtype).T

    @property
    def state(self) -> KVState:
        """The rotated tokens and the offset, as a snapshot; setting it replaces everything."""
        return self._rows.state

    @state.setter
    def state(self, state: KVState) -> None:
        self._rows = KVCache.from_state(state)

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
        return self._rows.trim(n)

    def size(self) -> int:
        """Tokens held (MEAS-1)."""
        return self._rows.size()

    def empty(self) -> bool:
        """Whether no token is held (MEAS-2)."""
        return self._rows.empty()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, spare rows included (MEAS-3)."""
        return self._rows.nbytes


@lru_cache(maxsize=64)
def _rotation(dim: int, dtype: mx.Dtype) -> mx.array:
    """The orthogonal matrix (D, D) by which rows are multiplied from the right."""
    matrix = mx.hadamard_transform(mx.eye(dim)).astype(dtype)
    mx.eval(matrix)  # a cached graph belongs to the thread that made it
    return matrix


def _rotated(rows: mx.array) -> mx.array:
    return rows @ _rotation(rows.shape[3], rows.dtype)


def _check_head_dim(owner: str, name: str, dim: int) -> None:
    """Check that rows of this width can be rotated."""
    odd = dim
    while odd > 1 and odd % 2 == 0:
        odd //= 2
    if odd == 1 or (odd in (3, 5, 7) and dim % 4 == 0):
        return
    raise ValueError(
        f"{owner}: the head dim of {name} must be m * 2^k with m one of 1, 12, 20, 28, got {dim}"
    )
