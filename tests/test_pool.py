"""The cache of a request over a pool: every contract of a storing cache, and the ways back."""

import pickle

import mlx.core as mx
import pytest

from conformance import Subject, Verdict, check
from reference_impl import KVCache, KVPool


def unfilled():
    """A pool-backed cache without a prefix."""
    return KVPool(16, 1, 3, 8, 12, dtype=mx.float32).backed_cache(0, [], 0)


def filled():
    pool = KVPool(16, 2, 1, 2)
    rows = mx.arange(6, dtype=mx.float16).reshape(3, 1, 2)
    pool.set_kv(1, [5, 2, 9], rows, -rows)
    return pool, pool.backed_cache(1, mx.array([5, 2, 9, 4]), 3)


def test_without_a_prefix_it_conforms_as_a_storing_cache():
    claims = {"batch_sizes": [1], "head_dims": [[8, 12]]}
    report = check(Subject("unfilled", unfilled, claims=claims), effort="quick", strict=True)
    assert report.conforms, str(report)
    assert report["COPY-2"].verdict is Verdict.PASS
    assert report["POOL-3"].verdict is Verdict.SKIP


def test_it_begins_with_the_rows_of_the_pool():
    _, cache = filled()
    keys, values = cache.keys_and_values()
    assert keys[0, 0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert mx.array_equal(values, -keys)
    assert cache.nbytes == 0
    assert cache.trim(1) == 1
    keys, _ = cache.update_and_fetch(*(mx.full((1, 1, 1, 2), 7.0),) * 2)
    assert keys[0, 0].tolist() == [[0, 1], [2, 3], [7, 7]]
    assert keys.dtype == mx.float32
    assert cache.to_kv_cache().offset == cache.offset == 3


def test_a_pickle_holds_the_tokens_and_no_pool():
    _, cache = filled()
    loaded = pickle.loads(pickle.dumps(cache))
    assert type(loaded) is KVCache
    assert mx.array_equal(loaded.keys_and_values()[0], cache.keys_and_values()[0])


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda pool: pool.get_kv(2, [1]), ValueError, "KVPool: layer must be below 2, got 2"),
        (lambda pool: pool.get_kv(0, [16]), ValueError, "KVPool: slots must be below 16, got 16"),
        (lambda pool: pool.backed_cache(0, [1], 2), ValueError, "at most the 1 slots, got 2"),
        (
            lambda pool: pool.set_kv(0, [3, 3], *(mx.zeros((2, 1, 2), mx.float16),) * 2),
            ValueError,
            "differ from each other",
        ),
        (
            lambda pool: pool.set_kv(0, [3], *(mx.zeros((1, 2)),) * 2),
            ValueError,
            r"keys must have shape \(1, 1, 2\), got \(1, 2\)",
        ),
        (
            lambda pool: pool.set_kv(0, [3], *(mx.zeros((1, 1, 2)),) * 2),
            TypeError,
            "keys must have the dtype of the pool",
        ),
        (lambda pool: KVPool(1, 1, 1, 1), ValueError, "slots must be at least 2, got 1"),
    ],
)
def test_errors_name_class_argument_and_value(call, error, said):
    pool, _ = filled()
    with pytest.raises(error, match=said):
        call(pool)
