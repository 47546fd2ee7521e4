"""Argument checks shared by the caches.

Every check runs before its cache changes anything (UPD-6, UPD-10), looks at shapes and dtypes
only, so that it evaluates nothing (UPD-12), and raises ``TypeError`` or ``ValueError`` with the
class, the argument and the value in its message.
"""

from __future__ import annotations

import mlx.core as mx


def check_int(owner: str, name: str, value: object, *, minimum: int) -> int:
    """Return ``value`` if it is an ``int`` of at least ``minimum``.

    A ``bool`` is no number here, and an ``mx.array`` is not turned into one: that would evaluate
    it.

    Raises:
        TypeError: ``value`` is not an ``int``.
        ValueError: ``value`` is below ``minimum``.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{owner}: {name} must be an int, got {_described(value)}")
    if value < minimum:
        raise ValueError(f"{owner}: {name} must be at least {minimum}, got {value}")
    return value


def check_chunk(
    owner: str, keys: object, values: object, held: tuple[mx.array, mx.array] | None
) -> tuple[mx.array, mx.array]:
    """Return one chunk, if it is sound and fits the arrays that the cache holds already.

    ``keys`` is (B, H, S, Dk) and ``values`` (B, H, S, Dv). Dk and Dv may differ, and so may the
    two dtypes (UPD-5). Where ``held`` is given, B, H, each head dim and each dtype must be those of
    ``held``: writing another dtype would cast it and writing a size of 1 would broadcast it, both
    without a word (UPD-6, UPD-15).

    Raises:
        TypeError: an argument is no ``mx.array``, or its dtype changed mid-stream.
        ValueError: a shape is wrong.
    """
    if not isinstance(keys, mx.array):
        raise TypeError(f"{owner}: keys must be an mx.array, got {_described(keys)}")
    if not isinstance(values, mx.array):
        raise TypeError(f"{owner}: values must be an mx.array, got {_described(values)}")
    keys_shape, values_shape = keys.shape, values.shape
    if len(keys_shape) != 4:
        raise ValueError(f"{owner}: keys must have shape (B, H, S, Dk), got {keys_shape}")
    if len(values_shape) != 4:
        raise ValueError(f"{owner}: values must have shape (B, H, S, Dv), got {values_shape}")
    if keys_shape[:3] != values_shape[:3]:
        raise ValueError(
            f"{owner}: values must have the (B, H, S) of keys {keys_shape}, got {values_shape}"
        )
    if held is not None:
        _check_fits(owner, "keys", keys, held[0])
        _check_fits(owner, "values", values, held[1])
    return keys, values


def checked_rows(owner: str, keys: object, values: object) -> tuple[mx.array, mx.array] | None:
    """The rows of a state that is being restored, or None if both are None.

    The arrays come back as new Python objects on the same data, so that an item assignment by the
    caller to its own does not reach the cache (REST-6).

    Raises:
        TypeError: one of them is neither an ``mx.array`` nor, with the other, None.
        ValueError: a shape is wrong.
    """
    if keys is None and values is None:
        return None
    keys, values = check_chunk(owner, keys, values, None)
    return keys[...], values[...]


def _check_fits(owner: str, name: str, rows: mx.array, held: mx.array) -> None:
    batch, heads, _, head_dim = rows.shape
    held_batch, held_heads, _, held_head_dim = held.shape
    if batch != held_batch or heads != held_heads or head_dim != held_head_dim:
        raise ValueError(
            f"{owner}: {name} must have B={held_batch}, H={held_heads} and head dim "
            f"{held_head_dim} as the tokens before, got shape {rows.shape}"
        )
    if rows.dtype != held.dtype:
        raise TypeError(
            f"{owner}: {name} must keep the dtype of the tokens before, {held.dtype}, "
            f"got {rows.dtype}"
        )


def _described(value: object) -> str:
    # The repr of an array would evaluate it.
    if isinstance(value, mx.array):
        return f"an mx.array of shape {value.shape}"
    return f"{value!r} ({type(value).__name__})"
