"""Attention masks from positions alone: what all caches here answer ``make_mask`` with."""

from __future__ import annotations

from typing import Literal, TypeAlias

import mlx.core as mx

AttentionMask: TypeAlias = "mx.array | Literal['causal'] | None"
"""A boolean array (N, L), True = may attend; or ``"causal"``, aligned lower-right; or None."""


def attention_mask(
    n_queries: int,
    offset: int,
    *,
    window: int | None = None,
    sinks: int = 0,
    dropped: int = 0,
    return_array: bool = False,
) -> AttentionMask:
    """The mask for the next ``n_queries`` tokens, whose positions are ``offset`` and up.

    The keys are those that the append of these tokens will return: the first ``sinks`` tokens,
    then, ``dropped`` tokens further on, every token up to the last query. That makes
    L = offset + n_queries - dropped (MASK-2). Query i sees key j if j <= i, and, where there is a
    ``window``, if j < sinks or i - (window - sinks) < j: sinks count inside the window (MASK-3).

    Args:
        n_queries: number of new tokens N, at least 1.
        offset: tokens logged so far.
        window: tokens that a query sees, itself included; None for all.
        sinks: leading tokens that stay visible for good, fewer than ``window``.
        dropped: tokens that come after the sinks in the log and will not be returned.
        return_array: give an array instead of ``"causal"`` (MASK-5).

    Returns:
        An array only where one is needed or asked for, since it keeps attention off the fused
        causal path and costs N x L bytes (MASK-4, MASK-9).
    """
    end = offset + n_queries
    recent = None if window is None else window - sinks
    # The last query reaches back least far, and the first key after the sinks is the oldest one
    # that it could miss. If it sees that, no query misses anything but its future.
    if recent is None or sinks + dropped > end - 1 - recent:
        if n_queries == 1:
            return None  # a single query has no future either
        if not return_array:
            return "causal"
    queries = mx.arange(offset, end)[:, None]
    keys = _returned_positions(sinks, dropped, end)
    visible = keys <= queries
    if recent is None:
        return visible
    return visible & ((keys < sinks) | (keys > queries - recent))


def _returned_positions(sinks: int, dropped: int, end: int) -> mx.array:
    """Absolute positions (L,) of the keys that will be returned, in their order."""
    if dropped == 0 or sinks == 0:
        return mx.arange(dropped, end)
    return mx.concatenate([mx.arange(sinks), mx.arange(sinks + dropped, end)])


def padded_attention_mask(
    n_queries: int,
    columns: int,
    left_padding: list[int],
    *,
    window: int | None = None,
    sinks: int = 0,
    first: int = 0,
    return_array: bool = False,
) -> AttentionMask:
    """The mask of a batch for the next ``n_queries`` columns, of which ``columns`` came before.

    The keys are those that the append will return: the columns from ``first`` on. Where ``first``
    is above 0 and there are ``sinks``, there stand as many rows before them; they hold those of the
    first ``sinks`` tokens of each row that are in columns before ``first``.

    A token sees what :func:`attention_mask` says, columns counted from the first token of its row,
    and never padding. A column that is padding itself sees itself: nobody reads the result, but
    attention over nothing is not a number, and would spoil the values of later layers.

    Returns:
        A boolean array (B, 1, N, L), if padding or the sinks make a difference between rows.
        Otherwise what :func:`attention_mask` returns for one row.
    """
    apart = sinks if first else 0
    end = columns + n_queries
    # The rows are alike once the padding has left the columns, and all sinks with it. And where
    # there is one column, it sees itself in every row.
    if end == 1 or all(padding <= max(first - sinks, 0) for padding in left_padding):
        return attention_mask(
            n_queries,
            columns,
            window=window,
            sinks=sinks,
            dropped=first - apart,
            return_array=return_array,
        )
    left = mx.array(left_padding, mx.int32).reshape(-1, 1, 1, 1)
    queries = mx.arange(columns, end)[:, None]
    keys = mx.arange(first, end)
    visible = (keys <= queries) & (keys >= left)
    if window is not None:
        recent = keys > queries - (window - sinks)
        visible = visible & (recent | (keys < left + sinks) if sinks else recent)
    visible = visible | (keys == queries)
    if not apart:
        return visible
    dropped = mx.broadcast_to(left + mx.arange(sinks) < first, (*visible.shape[:3], sinks))
    return mx.concatenate([dropped, visible], axis=-1)
