"""Dense attention over the log for one step, and how far rounding may take a dtype from it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from conformance.tags import KEYS, VALUES, Dims, to_numpy
from conformance.trace import Step

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def make_queries(dims: Dims, count: int) -> mx.array:
    """Queries of two heads a key head, so small that no key takes all the attention."""
    n = mx.arange(count).reshape(1, 1, -1, 1)
    h = mx.arange(2 * dims.heads).reshape(1, -1, 1, 1)
    b = mx.arange(dims.batch).reshape(-1, 1, 1, 1)
    d = mx.arange(dims.key_dim)
    mix = ((5 * n + 3 * h + 7 * b + 13 * d) % 17 - 8).astype(mx.float32)
    return (mix / (256.0 * dims.key_dim)).astype(dims.mx_dtype)


def dense_attention(step: Step, queries: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Dense attention over the log, and the rounding error that the dtype may add.

    With unit roundoff u: scores have an absolute error of at most u (Dk + 2) sum |q k|, which
    weights carry relatively, twice (numerator and denominator); weights and the sum over n keys
    add (n + 4) u. The error of an output is that, times the spread of the values.
    """
    run = step.run
    keys = run.expected_rows(step.ids, KEYS)
    values = run.expected_rows(step.ids, VALUES)
    held = keys, values
    if run.profile.capabilities.quantized:  # what mx.quantize makes of the rows
        held = tuple(  # type: ignore[assignment]
            to_numpy(run.dequantize(run.quantized(rows))) for rows in run.tokens(step.ids)
        )
    columns = list(step.columns)
    expected = run.log.attention(queries, *held, columns, step.visibility, scale)
    unit = UNIT_ROUNDOFF[run.dims.dtype]
    groups = queries.shape[1] // run.dims.heads
    terms = np.abs(queries) @ np.abs(np.repeat(keys, groups, axis=1)).swapaxes(-1, -2) * scale
    scores = terms.max(axis=-1, keepdims=True)
    spread = np.abs(values).max(axis=2, keepdims=True).repeat(groups, axis=1)
    if run.profile.capabilities.opaque:
        # It may keep rows in another basis: by a rotation there and back each row gets an error of
        # at most 2 u (D + 2) times its length, which scores and outputs carry on.
        lengths = [np.linalg.norm(rows, axis=-1).max() for rows in (queries, keys, values)]
        moved = 2 * unit * (run.dims.key_dim + 2) * lengths[0] * lengths[1] * scale
        turned = 2 * unit * (run.dims.value_dim + 2) * lengths[2]
    else:
        moved = turned = 0.0
    n = len(step.ids)
    bound = unit * (2 * (run.dims.key_dim + 2) * scores + n + 4) * spread
    bound += 2 * moved * spread + turned
    return expected, np.broadcast_to(bound + 1e-6, expected.shape)
