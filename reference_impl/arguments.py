"""Argument checks shared by the caches.

Every check runs before its cache changes anything (UPD-6, UPD-10), looks at shapes and dtypes
only, so that it evaluates nothing (UPD-12), and raises ``TypeError`` or ``ValueError`` with the
class, the argument and the value in its message.
"""

from __future__ import annotations

from typing import cast

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
        raise TypeError(f"{owner}: {name} must be an int, got {described(value)}")
    if value < minimum:
        raise ValueError(f"{owner}: {name} must be at least {minimum}, got {value}")
    return value


def checked_ints(
    owner: str, name: str, values: object, *, minimum: int | None = None, length: int | None = None
) -> list[int]:
    """One int for each row of a batch, as a new list.

    ``values`` is a list or tuple of ints, or an integer array of one axis, which is evaluated.

    Raises:
        TypeError: ``values`` is neither, or a member is not an ``int``.
        ValueError: an array has not one axis, a member is below ``minimum``, or there are not
            ``length`` of them.
    """
    if isinstance(values, mx.array):
        if values.ndim != 1:
            raise ValueError(f"{owner}: {name} must have one axis, got {described(values)}")
        if values.size and not mx.issubdtype(values.dtype, mx.integer):
            raise TypeError(f"{owner}: {name} must hold integers, got dtype {values.dtype}")
        numbers = cast("list[int]", values.tolist())
    elif isinstance(values, (list, tuple)):
        numbers = list(values)
    else:
        raise TypeError(
            f"{owner}: {name} must be a list of int or an integer array, got {described(values)}"
        )
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"{owner}: {name} must hold ints, got {described(number)}")
        if minimum is not None and number < minimum:
            raise ValueError(f"{owner}: {name} must be at least {minimum} each, got {number}")
    if length is not None and len(numbers) != length:
        raise ValueError(
            f"{owner}: {name} must have one number for each of the {length} rows, got {numbers}"
        )
    return numbers


def checked_selection(owner: str, keep: object, rows: int) -> list[int]:
    """The rows that a ``filter`` keeps, in their new order; see :func:`checked_ints`.

    Raises:
        TypeError: ``keep`` is neither a list of ints nor an integer array.
        ValueError: one of them is no row of the batch.
    """
    kept = checked_ints(owner, "keep", keep, minimum=0)
    for row in kept:
        if row >= rows:
            raise ValueError(f"{owner}: keep must name rows below {rows}, got {row}")
    return kept


def checked_row(owner: str, index: object, rows: int) -> int:
    """``index`` if it is a row of the batch.

    Raises:
        TypeError: ``index`` is not an ``int``.
        ValueError: it is negative, or there are not so many rows.
    """
    row = check_int(owner, "index", index, minimum=0)
    if row >= rows:
        raise ValueError(f"{owner}: index must be a row below {rows}, got {row}")
    return row


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
        raise TypeError(f"{owner}: keys must be an mx.array, got {described(keys)}")
    if not isinstance(values, mx.array):
        raise TypeError(f"{owner}: values must be an mx.array, got {described(values)}")
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
        check_fits(owner, "keys", keys, held[0].shape, held[0].dtype)
        check_fits(owner, "values", values, held[1].shape, held[1].dtype)
    return keys, values


def check_token(
    owner: str, key: object, value: object, held: tuple[mx.array, mx.array] | None
) -> tuple[mx.array, mx.array]:
    """Return one chunk of one token; see :func:`check_chunk`.

    Raises:
        TypeError: as there.
        ValueError: as there, or it is another number of tokens.
    """
    keys, values = check_chunk(owner, key, value, held)
    if keys.shape[2] != 1:
        raise ValueError(f"{owner}: key must be one token, (B, H, 1, Dk), got shape {keys.shape}")
    return keys, values


def check_fits(
    owner: str, name: str, rows: mx.array, held_shape: tuple[int, ...], held_dtype: mx.Dtype
) -> None:
    """Check that ``rows`` can follow rows of shape (B, H, any, D) and this dtype.

    Raises:
        TypeError: the dtype differs.
        ValueError: B, H or D differs.
    """
    batch, heads, _, head_dim = rows.shape
    held_batch, held_heads, _, held_head_dim = held_shape
    if batch != held_batch or heads != held_heads or head_dim != held_head_dim:
        raise ValueError(
            f"{owner}: {name} must have B={held_batch}, H={held_heads} and head dim "
            f"{held_head_dim} as the tokens before, got shape {rows.shape}"
        )
    if rows.dtype != held_dtype:
        raise TypeError(
            f"{owner}: {name} must keep the dtype of the tokens before, {held_dtype}, "
            f"got {rows.dtype}"
        )


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


def described(value: object) -> str:
    """``value`` as messages show it; an array by its shape, since its repr would evaluate it."""
    if isinstance(value, mx.array):
        return f"an mx.array of shape {value.shape}"
    return f"{value!r} ({type(value).__name__})"
