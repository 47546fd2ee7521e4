"""Tagged tokens: keys and values from which each returned row tells which token it is.

The number of a token stands in element 0 of its key and its value; the other elements mix in
batch row, head and element, so that a row that was moved to another head, half overwritten or
rounded is not mistaken for a token. All elements are exact in float32, in float16 up to token
2048 and in bfloat16 up to token 256.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

UNKNOWN = -1
"""The id of a row that is no token that was ever appended."""

KEYS, VALUES = 0, 3
"""Salts that tell a token's key from its value."""

LARGEST_TOKEN = {"float32": 1 << 20, "float16": 2048, "bfloat16": 256}
"""Tokens below this number are exact in the dtype."""

_CHUNK_LIMIT = 1 << 20


@dataclass(frozen=True)
class Dims:
    """Sizes of one run. They are kept pairwise distinct, so that swapped axes show."""

    batch: int
    heads: int
    key_dim: int
    value_dim: int
    dtype: str = "float32"

    @property
    def mx_dtype(self) -> mx.Dtype:
        dtype = getattr(mx, self.dtype)
        assert isinstance(dtype, mx.Dtype)
        return dtype

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, {self.heads} heads, head dim {self.key_dim}"
            f"{'' if self.value_dim == self.key_dim else f' (values {self.value_dim})'}"
            f", {self.dtype}"
        )


FRACTION = {"float32": 2.0**-12, "float16": 2.0**-6, "bfloat16": 2.0**-3}
"""What is added to a pattern: as fine as the dtype can hold, so that rounding shows."""


def _pattern(ids: IntArray, batch: int, heads: int, dim: int, salt: int, dtype: str) -> FloatArray:
    """The numpy twin of helpers.make_tokens, for ids of shape (S,) or (batch, heads, S)."""
    t = ids[..., None] if ids.ndim == 3 else ids.reshape(1, 1, -1, 1)
    b = np.arange(batch).reshape(-1, 1, 1, 1)
    h = np.arange(heads).reshape(1, -1, 1, 1)
    d = np.arange(dim)
    mix = (7 * t + 4 * b + h + 11 * d + salt) % 29 - 14 + FRACTION[dtype]
    return np.where(d == 0, t, mix)


def expected_rows(ids: Iterable[int], dims: Dims, salt: int) -> FloatArray:
    """The rows of the given tokens, shape (batch, heads, len(ids), dim)."""
    dim = dims.key_dim if salt == KEYS else dims.value_dim
    array = np.fromiter(ids, dtype=np.int64)
    return _pattern(array, dims.batch, dims.heads, dim, salt, dims.dtype)


def to_numpy(array: mx.array) -> FloatArray:
    """Evaluate an array of any dtype (bfloat16 included) into numpy."""
    if array.dtype in (mx.bfloat16, mx.float16):
        array = array.astype(mx.float32)
    return np.array(array, dtype=np.float64)


def identify(rows: FloatArray, salt: int, dtype: str = "float32") -> IntArray:
    """Which token each row is: ids of shape (batch, heads, L), ``UNKNOWN`` where none.

    Exact: every element of a row must be the one that was appended.
    """
    batch, heads, length, dim = rows.shape
    if dim == 0 or length == 0:
        return np.full((batch, heads, length), UNKNOWN, dtype=np.int64)
    first = rows[..., 0]
    plausible = np.isfinite(first) & (np.abs(first) < _CHUNK_LIMIT) & (first == np.round(first))
    ids = np.where(plausible, first, 0).astype(np.int64)
    exact = (rows == _pattern(ids, batch, heads, dim, salt, dtype)).all(axis=-1)
    return np.where(plausible & exact & (ids >= 0), ids, UNKNOWN)
