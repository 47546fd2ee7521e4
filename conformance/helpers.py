"""Helpers that a printed counterexample carries along, and that the suite itself runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mlx.core as mx


def make_tokens(
    ids: Iterable[int] | mx.array, B: int, H: int, Dk: int, Dv: int, dtype: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """Keys and values of tokens: the token's number, then a pattern of row, head and element."""
    if not isinstance(ids, mx.array):  # of shape (B, H, S), one number for each row
        ids = mx.array(list(ids), dtype=mx.int32).reshape(1, 1, -1)
    t = ids[..., None]
    b = mx.arange(B).reshape(B, 1, 1, 1)
    h = mx.arange(H).reshape(1, H, 1, 1)

    # A fraction that the dtype just holds beside the pattern, so that rounding shows.
    fraction = {mx.float32: 2.0**-12, mx.float16: 2.0**-6}.get(dtype, 2.0**-3)

    def rows(D: int, salt: int) -> mx.array:
        d = mx.arange(D)
        mix = (7 * t + 4 * b + h + 11 * d + salt) % 29 - 14 + fraction
        return mx.where(d == 0, t, mix).astype(dtype)

    return rows(Dk, 0), rows(Dv, 3)


def tokens(ids: Iterable[int] | mx.array) -> tuple[mx.array, mx.array]:
    """In a program: make_tokens with the sizes of the run."""
    raise NotImplementedError


def numbers(rows: Any, b: int = 0, which: int = 0, head: int | None = None) -> list[int]:
    """Which token each row of sequence b is, in every head or in one, -1 where none; which = 1
    for values."""
    heads = slice(None) if head is None else slice(head, head + 1)
    ids = [int(n) if 0 <= n < 1 << 20 else 0 for n in rows[b, head or 0, :, 0].tolist()]
    made = tokens(ids)[which]
    if made[:1].shape != rows[:1].shape:
        return [-1] * len(ids)
    same = mx.all(rows[b, heads] == made[min(b, len(made) - 1), heads], axis=(0, 2))
    return [n if s else -1 for n, s in zip(ids, list(same), strict=True)]


def seen(
    mask: Any, keys: Any, N: int, query: int, b: int = 0, head: int | None = None
) -> list[int]:
    """The tokens that one of N queries may attend, by the mask that was made for them."""
    L = keys.shape[2]
    if mask is None:
        mask = mx.ones((N, L), dtype=mx.bool_)
    elif isinstance(mask, str):  # "causal" is aligned at the lower right
        mask = mx.arange(L) <= mx.arange(L - N, L)[:, None]
    elif mask.dtype != mx.bool_:
        mask = mask == 0
    shown = mx.broadcast_to(mask, (keys.shape[0], 1, N, L))[b, 0, query]
    return sorted(n for n, m in zip(numbers(keys, b, 0, head), list(shown), strict=True) if m)


def opened(tokens: Any, cache: Any, keys: Any, values: Any) -> tuple[Any, Any]:
    """The tokens behind handles, by the cache's own attention; what is no handle as it is.

    A query that may attend to one key alone gets its value. That tells the token, whose key and
    value are returned: the nearest one, within rounding, or rows of -1.
    """
    if isinstance(keys, (mx.array, tuple, list)):
        return keys, values
    key, value = tokens([0])
    B, H, L = keys.shape[:3]
    queries = mx.zeros((B, H, L, key.shape[3]), key.dtype)
    got = cache.attend(queries, keys, values, scale=1.0, mask=mx.eye(L) == 1)
    first = mx.maximum(mx.round(got[..., 0].astype(mx.float32)).astype(mx.int32), 0)
    near = [mx.maximum(first + n, 0) for n in (0, 1, -1, 2, -2)]
    off = mx.stack([mx.abs(tokens(n)[1] - got).max(axis=-1) for n in near])
    best = mx.argmin(off, axis=0)[None]
    ids = mx.take_along_axis(mx.stack(near), best, axis=0)[0]
    # A row that was turned into another basis and back is off by this much, times its length.
    unit = mx.finfo(value.dtype).eps * (got.shape[3] + 2)
    rounding = unit * mx.sqrt((got.astype(mx.float32) ** 2).sum(axis=-1))
    known = (mx.take_along_axis(off, best, axis=0)[0] <= rounding)[..., None]
    made = tokens(ids)
    return mx.where(known, made[0], -1), mx.where(known, made[1], -1)


def ragged_step(
    caches: list[Any], queries: mx.array, keys: mx.array, values: mx.array, window: int | None
) -> mx.array:
    """One decode step over the caches of several requests: write, read, pad at the right, mask."""
    read = []
    for i, cache in enumerate(caches):
        cache.write_token(keys[i : i + 1], values[i : i + 1])
        read.append(cache.get_kv() if window is None else cache.get_kv(window))
    lengths = [rows[0].shape[2] for rows in read]
    L = max(lengths)
    pads = [[(0, 0), (0, 0), (0, L - n), (0, 0)] for n in lengths]
    keys, values = (
        mx.concatenate([mx.pad(rows[which], pad) for rows, pad in zip(read, pads, strict=True)])
        for which in (0, 1)
    )
    mask = (mx.arange(L) < mx.array(lengths)[:, None])[:, None, None]
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask=mask)


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
