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

    # A fraction that the dtype just holds beside the pattern, so that rounding shows.
    fraction = {mx.float32: 2.0**-12, mx.float16: 2.0**-6}.get(dtype, 2.0**-3)

    def rows(D: int, salt: int) -> mx.array:
        d = mx.arange(D)
        mix = (7 * t + 4 * b + h + 11 * d + salt) % 29 - 14 + fraction
        return mx.where(d == 0, t, mix).astype(dtype)

    return rows(Dk, 0), rows(Dv, 3)


def tokens(ids: Iterable[int]) -> tuple[mx.array, mx.array]:
    """In a program: make_tokens with the sizes of the run."""
    raise NotImplementedError


def numbers(rows: Any, b: int = 0, which: int = 0) -> list[int]:
    """Which token each row of sequence b is, -1 where none; which = 1 for values."""
    ids = [int(n) if 0 <= n < 1 << 20 else 0 for n in rows[b, 0, :, 0].tolist()]
    made = tokens(ids)[which]
    if made[:1].shape != rows[:1].shape:
        return [-1] * len(ids)
    same = mx.all(rows[b] == made[min(b, len(made) - 1)], axis=(0, 2))
    return [n if s else -1 for n, s in zip(ids, list(same), strict=True)]


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
