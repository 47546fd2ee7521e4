"""A KV cache for chunked attention, which can drop the chunks that are over."""

from __future__ import annotations

from typing import TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_chunk, check_int, checked_rows
from reference_impl.buffers import appended, grown_capacity, joined

ChunkState: TypeAlias = "tuple[mx.array | None, mx.array | None, int, int, int]"
"""Keys (B, H, L, Dk), values (B, H, L, Dv), offset, start_position, chunk_size, where
L = offset - start_position; None for both if no token was ever held."""


class ChunkedKVCache:
    """Keeps the tokens from ``start_position`` on; each query sees those of its own chunk.

    With chunk size C, query i sees key j if j <= i and both are in the same C tokens:
    i // C == j // C. Tokens of a chunk that is over are of no use any more, but nothing drops them
    unasked, since the rows that an append returns must fit a mask which the model has made. The
    model calls :meth:`maybe_trim_front` first thing in a pass, then reads ``start_position`` and
    ``offset`` and makes the mask of the pass from them; that is why there is no ``make_mask``
    (MASK-12). The append that follows returns offset + S - start_position rows (WIN-8).

    Shapes, growth, refusals and aliasing are those of :class:`reference_impl.KVCache`.

    Args:
        chunk_size: tokens of a chunk, C.

    Raises:
        TypeError: ``chunk_size`` is not an int.
        ValueError: ``chunk_size`` is below 1 (WIN-5).
    """

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = check_int(type(self).__name__, "chunk_size", chunk_size, minimum=1)
        self._offset = 0
        self._start_position = 0
        # Keys and values; the first rows are the tokens from _start_position on, those from
        # offset - _start_position on are spare. None while no token was ever held.
        self._buffers: tuple[mx.array, mx.array] | None = None

    @property
    def chunk_size(self) -> int:
        """Tokens of a chunk."""
        return self._chunk_size

    @property
    def offset(self) -> int:
        """Position of the next token, whatever was dropped from the front (WIN-2, POS-2)."""
        return self._offset

    @property
    def start_position(self) -> int:
        """Position of the first token held."""
        return self._start_position

    def maybe_trim_front(self) -> None:
        """Drop the chunks that are over: all tokens that the next one cannot see (WIN-8).

        That leaves ``offset % chunk_size`` tokens. Their rows are copied, fewer than one for each
        token appended, so that the memory of the others is free.
        """
        beginning = self._offset - self._offset % self._chunk_size
        if self._buffers is None or beginning == self._start_position:
            return
        kept = slice(beginning - self._start_position, self._offset - self._start_position)
        capacity = grown_capacity(self._offset - beginning)
        keys, values = self._buffers
        self._buffers = joined([keys[:, :, kept]], capacity), joined([values[:, :, kept]], capacity)
        self._start_position = beginning

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[mx.array, mx.array]:
        """Append S tokens and return all tokens held, the new ones last (UPD-1, UPD-2).

        An append of no tokens changes nothing, not even an empty cache (UPD-7).

        Args:
            keys: (B, H, S, Dk).
            values: (B, H, S, Dv).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv), L = offset + S - start_position, dtypes as
            they came.

        Raises:
            TypeError: not an ``mx.array``, or another dtype than before.
            ValueError: a rank, batch size, head count, head dim or length that does not fit.
        """
        held = self._buffers
        check_chunk(type(self).__name__, keys, values, held)
        new = keys.shape[2]
        rows = self.size()
        if held is not None:
            if new:
                self._buffers = appended(held[0], rows, keys), appended(held[1], rows, values)
        elif new == 0:
            return keys[...], values[...]
        else:
            capacity = grown_capacity(new)
            self._buffers = joined([keys], capacity), joined([values], capacity)
        self._offset += new
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """All tokens held: what the last update returned, less what was trimmed or dropped since
        (READ-1, READ-2).

        Returns:
            Keys (B, H, L, Dk) and values (B, H, L, Dv), L = offset - start_position.

        Raises:
            RuntimeError: no token was ever held, so the shapes are not known.
        """
        if self._buffers is None:
            raise RuntimeError(
                f"{type(self).__name__}.keys_and_values: the cache is empty; append tokens first"
            )
        keys, values = self._buffers
        return keys[:, :, : self.size()], values[:, :, : self.size()]

    @property
    def state(self) -> ChunkState:
        """The tokens held and their positions, as a snapshot (STATE-1 to STATE-4, STATE-6).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        if self._buffers is None:
            return None, None, 0, 0, self._chunk_size
        return *self.keys_and_values(), self._offset, self._start_position, self._chunk_size

    @state.setter
    def state(self, state: ChunkState) -> None:
        owner = type(self).__name__
        keys, values, offset, start_position, chunk_size = state
        check_int(owner, "state chunk_size", chunk_size, minimum=1)
        check_int(owner, "state offset", offset, minimum=0)
        check_int(owner, "state start_position", start_position, minimum=0)
        held = checked_rows(owner, keys, values)
        rows = 0 if held is None else held[0].shape[2]
        if rows != offset - start_position or (held is None) != (offset == 0):
            raise ValueError(
                f"{owner}: state must hold the rows from its start_position up to its offset, and "
                f"None for offset 0, got {rows} rows for {start_position} and {offset}"
            )
        if start_position > offset - offset % chunk_size:
            raise ValueError(
                f"{owner}: state must hold the whole chunk that its offset {offset} is in, got "
                f"start_position {start_position} for chunk_size {chunk_size}"
            )
        self._chunk_size = chunk_size
        self._offset = offset
        self._start_position = start_position
        self._buffers = held

    @classmethod
    def from_state(cls, state: ChunkState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Whether :meth:`trim` can remove tokens: True until the front was dropped (TRIM-8).

        From then on a cache with fewer tokens could need rows that are gone.
        """
        return self._start_position == 0

    def trim(self, n: int) -> int:
        """Remove the newest ``min(n, offset)`` tokens and return their number (TRIM-1 to TRIM-4).

        Returns 0 and changes nothing once the front was dropped (TRIM-3).

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative (TRIM-7).
        """
        check_int(type(self).__name__, "n", n, minimum=0)
        if not self.is_trimmable():
            return 0
        removed = min(n, self._offset)
        self._offset -= removed
        if self._offset == 0:
            self._buffers = None
        return removed

    def size(self) -> int:
        """Tokens held (MEAS-1)."""
        return self._offset - self._start_position

    def empty(self) -> bool:
        """Whether no token was ever held; False after the front was dropped (MEAS-2)."""
        return self._offset == 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, spare rows included (MEAS-3)."""
        return 0 if self._buffers is None else sum(buffer.nbytes for buffer in self._buffers)
