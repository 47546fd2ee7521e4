"""Helpers that a printed counterexample carries along, and that the suite itself runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mlx.core as mx


def make_tokens(
    ids: Iterable[int], B: int, H: int, Dk: int, Dv: int, dtype: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """Keys and values of tokens: the token's number, then a pattern of row, head and element."""
    ids = list(ids)
    t = mx.array(ids, dtype=mx.int32).reshape(1, 1, len(ids), 1)
    b = mx.arange(B).reshape(B, 1, 1, 1)
    h = mx.arange(H).reshape(1, H, 1, 1)

    def rows(D: int, salt: int) -> mx.array:
        d = mx.arange(D)
        mix = (7 * t + 4 * b + h + 11 * d + salt) % 29 - 14
        return mx.where(d == 0, t + 0 * mix, mix).astype(dtype)

    return rows(Dk, 0), rows(Dv, 3)


def numbers(rows: Any, b: int = 0) -> list[int]:
    """Which token each returned row of sequence b is: its number stands in element 0."""
    return [int(n) for n in rows[b, 0, :, 0].tolist()]


def seen(mask: Any, keys: Any, N: int, query: int, b: int = 0) -> list[int]:
    """The tokens that one of N queries may attend, by the mask that was made for them."""
    L = keys.shape[2]
    if mask is None:
        mask = mx.ones((N, L), dtype=mx.bool_)
    elif isinstance(mask, str):  # "causal" is aligned at the lower right
        mask = mx.arange(L) <= mx.arange(L - N, L)[:, None]
    elif mask.dtype != mx.bool_:
        mask = mask == 0
    shown = mx.broadcast_to(mask, (keys.shape[0], 1, N, L))[b, 0, query]
    return sorted(n for n, m in zip(numbers(keys, b), list(shown), strict=True) if m)


def dequantized(rows: Any, cache: Any) -> mx.array:
    """The rows of an affine (packed, scales, biases) triple."""
    packed, scales, biases = rows
    return mx.dequantize(packed, scales, biases, cache.group_size, cache.bits)


def arrays(tree: Any) -> list[mx.array]:
    """The arrays of a tree of tuples, lists and dicts."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        return [a for item in tree for a in arrays(item)]
    return [tree] if isinstance(tree, mx.array) else []
