"""The reference layout and its decode steps: errors that name class, argument and value."""

import mlx.core as mx
import pytest

from reference_impl import BatchedDecode, CacheLayout, KVCache, KVPool, SlidingWindowKVCache

LAYOUT = CacheLayout(range(3), ["attn", None, "attn"], {0: 4})


def request(length):
    caches = [SlidingWindowKVCache(4), None, KVCache()]
    for cache in caches[::2]:
        cache.update_and_fetch(*(mx.zeros((1, 1, length, 2)),) * 2)
    return caches


def uneven():
    caches = request(3)
    caches[2].trim(1)
    return [request(2), caches]


ROW = mx.zeros((2, 1, 1, 2))


def step(**options):
    return LAYOUT.batched_decode([request(3), request(9)], **options)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: CacheLayout([1, 2], ["attn"]), ValueError, "each of the 2 layers, got 1"),
        (lambda: CacheLayout([1], [None], {0: 4}), ValueError, r"attention layers, \[\], got 0"),
        (lambda: CacheLayout([1], ["attn"], {0: 0}), ValueError, "window of layer 0 must be at"),
        (lambda: LAYOUT.full_kv_pool_index(0), KeyError, r"layer, one of \[2\], got 0"),
        (lambda: LAYOUT.batched_decode([request(1)[:2]]), ValueError, "the 3 layers, got 2"),
        (lambda: LAYOUT.batched_decode([]), ValueError, "must have a layer and a request"),
        (
            lambda: LAYOUT.batched_decode(uneven()),
            ValueError,
            r"one offset, got \[2, 3\] in layer 0 and \[2, 2\] in layer 2",
        ),
        (
            lambda: BatchedDecode({0: [KVCache()]}, pool=KVPool(4, 1, 1, 2), slots=[1]),
            ValueError,
            "pool_index_by_layer must be given with a pool",
        ),
        (lambda: step(pool=KVPool(4, 1, 1, 2), slots=[1]), ValueError, "each of the 2 rows"),
        (lambda: step(pool=KVPool(4, 1, 1, 2), slots=[2, 2]), ValueError, "differ from each other"),
        (lambda: step(pool=KVPool(4, 1, 1, 2), slots=[1, 4]), ValueError, "slots must be below 4"),
        (lambda: step().attend(1, ROW, ROW, ROW, scale=1.0), KeyError, r"one of \[0, 2\], got 1"),
        (
            lambda: step().attend(0, ROW, ROW[:1], ROW[:1], scale=1.0),
            ValueError,
            "a row for each of the 2 requests",
        ),
    ],
)
def test_errors_name_class_argument_and_value(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_a_step_serves_each_layer_once():
    one = step()
    one.attend(0, ROW, ROW, ROW, scale=1.0)
    with pytest.raises(RuntimeError, match="layer 0 was attended in this step"):
        one.attend(0, ROW, ROW, ROW, scale=1.0)
