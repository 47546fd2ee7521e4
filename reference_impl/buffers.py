"""Row buffers: arrays (B, H, capacity, D) of which the cache uses a part of axis 2.

An MLX item assignment changes the Python object that it is made on, and with it what every holder
of that object sees. So a buffer that anybody may hold is never assigned to: ``written`` makes a
new object and assigns to that one. Nothing is copied by this when the graph runs, as long as the
old buffer has no other holder by then: MLX then writes the new rows into its memory ("donation").
Where somebody still holds it, or a view of it, MLX copies the buffer first, and nobody sees the
write. Safety never depends on donation; speed does.
"""

from __future__ import annotations

import mlx.core as mx

STEP = 32
"""Fewest spare rows that a growth adds."""


def grown_capacity(rows: int) -> int:
    """Capacity in rows for a buffer that has to hold ``rows`` now: half as much again.

    With this factor T one-token appends copy fewer than 3 T rows in total (the buffers outgrown
    have sizes c, c/1.5, c/1.5^2, ... which add up to less than 3 c), and a buffer is at most 1.5
    times the rows in it, plus ``STEP`` (UPD-11). A smaller factor breaks the first bound, a larger
    one the second.
    """
    return rows + max(rows // 2, STEP)


def joined(pieces: list[mx.array], capacity: int) -> mx.array:
    """A new buffer of ``capacity`` rows that begins with ``pieces``, each (B, H, n, D)."""
    if sum(piece.shape[2] for piece in pieces) == capacity:
        return mx.concatenate(pieces, axis=2)
    batch, heads, _, head_dim = pieces[0].shape
    # On the CPU this is faster than to concatenate with a block of zeros.
    buffer = mx.zeros((batch, heads, capacity, head_dim), pieces[0].dtype)
    start = 0
    for piece in pieces:
        buffer[:, :, start : start + piece.shape[2]] = piece
        start += piece.shape[2]
    return buffer


def written(buffer: mx.array, start: int, rows: mx.array) -> mx.array:
    """``buffer`` with ``rows`` (B, H, S, D) from ``start`` on, as a new array object."""
    buffer = buffer[...]
    buffer[:, :, start : start + rows.shape[2]] = rows
    return buffer


def appended(buffer: mx.array, held: int, rows: mx.array) -> mx.array:
    """A buffer whose first ``held`` rows are those of ``buffer``, and ``rows`` (B, H, S, D) next.

    Grows by :func:`grown_capacity` where there is no room.
    """
    end = held + rows.shape[2]
    if end > buffer.shape[2]:
        return joined([buffer[:, :, :held], rows], grown_capacity(end))
    return written(buffer, held, rows)


def slid(
    buffer: mx.array, start: int, sink_rows: mx.array | None, end: int, rows: mx.array
) -> mx.array:
    """A buffer with ``rows`` at ``end``, and ``sink_rows``, if any, at ``start``.

    The rows at ``start`` must be of no use any more.
    """
    if sink_rows is not None:
        buffer = written(buffer, start, sink_rows)
    return written(buffer, end, rows)


def moved(
    buffer: mx.array,
    start: int,
    sink_rows: mx.array | None,
    end: int,
    rows: mx.array,
    capacity: int,
) -> mx.array:
    """The view that :func:`_slid` gives, at the front of a new buffer."""
    if sink_rows is None:
        return joined([buffer[:, :, start:end], rows], capacity)
    start += sink_rows.shape[2]
    return joined([sink_rows, buffer[:, :, start:end], rows], capacity)
