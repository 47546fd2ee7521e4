"""The oracle and the tags, against brute force."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance import helpers
from conformance.helpers import make_tokens, numbers, seen
from conformance.log import TokenLog
from conformance.tags import (
    KEYS,
    LARGEST_TOKEN,
    UNKNOWN,
    VALUES,
    Dims,
    expected_rows,
    identify,
    to_numpy,
)
from kvproto.visibility import Full, Sinks, SlidingWindow

DIMS = Dims(2, 3, 5, 7)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tokens_are_exact_in_every_dtype(dtype):
    ids = [0, 1, LARGEST_TOKEN[dtype] - 1]
    dims = replace(DIMS, dtype=dtype)
    keys, values = make_tokens(ids, 2, 3, 5, 7, getattr(mx, dtype))
    assert keys.shape == (2, 3, 3, 5)
    assert values.shape == (2, 3, 3, 7)
    np.testing.assert_array_equal(to_numpy(keys), expected_rows(ids, dims, KEYS))
    np.testing.assert_array_equal(to_numpy(values), expected_rows(ids, dims, VALUES))
    assert (identify(to_numpy(keys), KEYS, dtype) == ids).all()


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=8, unique=True))
def test_every_row_and_head_is_told_apart(ids):
    rows = expected_rows(ids, DIMS, KEYS).reshape(-1, DIMS.key_dim)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_a_row_that_was_touched_is_no_token():
    rows = expected_rows([4, 5], DIMS, KEYS)
    assert (identify(rows, KEYS) == [4, 5]).all()
    for change in (rows[:, ::-1], rows[::-1], np.zeros_like(rows), rows + 0.5, rows * np.nan):
        assert (identify(change.copy(), KEYS) == UNKNOWN).any(), change
    assert (identify(rows, VALUES) == UNKNOWN).all()


def test_numbers_are_never_used_twice():
    log = TokenLog([0])
    assert log.append(3) == [0, 1, 2]
    log.trim(2)
    log.trim(0)
    assert log.append(2) == [3, 4]
    assert log.ids == [0, 3, 4]


def test_padding_moves_positions():
    log = TokenLog([2, 0])
    log.append(4)
    assert log.offsets == [2, 4]
    assert log.is_padding(0, 1)
    assert not log.is_padding(0, 2)
    assert log.visible(0, 3, Full()) == [2, 3]
    assert log.visible(1, 3, SlidingWindow(2)) == [2, 3]
    assert log.visible(1, 3, Sinks(1, 3)) == [0, 2, 3]


def test_dense_attention_is_softmax_over_the_visible_keys():
    dims = Dims(1, 2, 4, 3)
    log = TokenLog([0])
    log.append(5)
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(1, 4, 2, 4))
    keys, values = expected_rows(range(5), dims, KEYS), expected_rows(range(5), dims, VALUES)
    out = log.attention(queries, keys, values, [3, 4], SlidingWindow(3), 0.5)
    for head in range(4):
        for index, column in enumerate((3, 4)):
            scores = np.array(
                [
                    keys[0, head // 2, j] @ queries[0, head, index] * 0.5
                    if column - 3 < j <= column
                    else -np.inf
                    for j in range(5)
                ]
            )
            weights = np.exp(scores - scores.max())
            expected = weights @ values[0, head // 2] / weights.sum()
            np.testing.assert_allclose(out[0, head, index], expected)


def test_masks_and_numbers_read_by_the_printed_helpers(monkeypatch):
    monkeypatch.setattr(helpers, "tokens", lambda ids: make_tokens(ids, 1, 1, 3, 4, mx.float32))
    keys, values = make_tokens(range(4), 1, 1, 3, 4, mx.float32)
    assert numbers(keys) == numbers(values, 0, 1) == [0, 1, 2, 3]
    assert numbers(values) == [-1, -1, -1, -1]
    assert numbers(mx.concatenate([keys, mx.zeros((1, 1, 1, 3))], axis=2)) == [0, 1, 2, 3, -1]
    assert seen(None, keys, 1, 0) == [0, 1, 2, 3]
    assert seen("causal", keys, 2, 0) == [0, 1, 2]
    assert seen(mx.array([[True, False, True, False]]), keys, 1, 0) == [0, 2]
    assert seen(mx.array([[0.0, -np.inf, 0.0, -np.inf]]), keys, 1, 0) == [0, 2]
