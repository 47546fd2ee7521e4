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
    log = run.log
    full = list(log.ids)
    log.ids = step.ids
    try:
        expected = log.attention(queries, list(step.columns), step.visibility, run.dims, scale)
    finally:
        log.ids = full
    if run.profile.capabilities.quantized:
        expected = _dense_quantized(step, queries, scale)
    keys = run.expected_rows(step.ids, KEYS)
    values = run.expected_rows(step.ids, VALUES)
    unit = UNIT_ROUNDOFF[run.dims.dtype]
    groups = queries.shape[1] // run.dims.heads
    terms = np.abs(queries) @ np.abs(np.repeat(keys, groups, axis=1)).swapaxes(-1, -2) * scale
    scores = terms.max(axis=-1, keepdims=True)
    spread = np.abs(values).max(axis=2, keepdims=True).repeat(groups, axis=1)
    n = len(step.ids)
    bound = unit * (2 * (run.dims.key_dim + 2) * scores + n + 4) * spread
    return expected, np.broadcast_to(bound + 1e-6, expected.shape)


def _dense_quantized(step: Step, queries: np.ndarray, scale: float) -> np.ndarray:
    """Dense attention over what mx.quantize makes of the logged rows."""
    run = step.run
    keys, values = (to_numpy(run.dequantize(run.quantized(rows))) for rows in run.tokens(step.ids))
    out = np.full((*queries.shape[:3], run.dims.value_dim), np.nan)
    groups = queries.shape[1] // run.dims.heads
    for row in range(run.dims.batch):
        for index, column in enumerate(step.columns):
            if run.log.is_padding(row, column):
                continue
            seen = run.log.visible(row, column, step.visibility)
            for head in range(queries.shape[1]):
                scores = keys[row, head // groups, seen] @ queries[row, head, index] * scale
                weights = np.exp(scores - scores.max())
                out[row, head, index] = weights @ values[row, head // groups, seen] / weights.sum()
    return out
