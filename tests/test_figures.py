"""What the reference caches cost, counted: the figures that must not get worse."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest

from conformance.bench import Candidate, Layer, moved_rows, reference_of
from conformance.graph import pending
from conformance.subject import Profile, examine, subjects_from_target
from conformance.target import TargetError
from conformance.trace import reachable_arrays

STEP = 33
"""Rows that a buffer may have spare beside its half: the least growth, and the token to come."""


def profile(target: str) -> Profile:
    (subject,) = subjects_from_target(target)
    return examine(subject)


def one(target: str, *, dim: int = 8) -> Candidate:
    found = profile(target)
    batch = len(found.claims.left_padding or (0,))
    return Candidate(found, Layer(batch, 1, dim, dim, "float16"))


@pytest.mark.parametrize(
    ("target", "rows_an_append"),
    [
        ("reference_impl:KVCache()", 3),
        ("reference_impl:BatchKVCache([1, 0])", 3),
        ("reference_impl:QuantizedKVCache(32, 8)", 3),
        # A window of 64 is moved to the front of a new buffer once in 64 appends.
        ("reference_impl:SlidingWindowKVCache(64)", 1.1),
        ("reference_impl:SlidingWindowKVCache(64, sinks=4)", 1.1),
        ("reference_impl:BatchSlidingWindowKVCache(64, [1, 0])", 1.1),
    ],
)
def test_growth_copies_few_rows(target: str, rows_an_append: float) -> None:
    tokens = 4096
    moved = moved_rows(one(target), tokens)
    assert moved[-1] <= rows_an_append * tokens


@pytest.mark.parametrize(
    ("target", "most_rows"),
    [
        ("reference_impl:KVCache()", lambda held: 1.5 * held + STEP),
        ("reference_impl:QuantizedKVCache(32, 8)", lambda held: 1.5 * held + STEP),
        ("reference_impl:BatchKVCache([1, 0])", lambda held: 1.5 * held + STEP),
        ("reference_impl:SlidingWindowKVCache(64)", lambda held: 2 * 64 - 1),
    ],
)
def test_buffers_have_few_spare_rows(target: str, most_rows: Callable[[int], float]) -> None:
    candidate = one(target, dim=32)
    cache = candidate.profile.subject.factory()
    for held in range(1, 600):
        candidate.append(cache, 1)
        rows = max(array.shape[-2] for array in reachable_arrays(cache) if array.ndim == 4)
        assert rows <= most_rows(held)


@pytest.mark.parametrize(
    ("target", "operations"),
    [
        ("reference_impl:KVCache()", {"SliceUpdate": 2, "Slice": 2}),
        ("reference_impl:BatchKVCache([1, 0])", {"SliceUpdate": 2, "Slice": 2}),
        ("reference_impl:SlidingWindowKVCache(64)", {"SliceUpdate": 2, "Slice": 2}),
        ("reference_impl:SlidingWindowKVCache(64, sinks=4)", {"SliceUpdate": 4, "Slice": 2}),
    ],
)
def test_decode_step_is_two_writes_and_two_views(target: str, operations: dict[str, int]) -> None:
    candidate = one(target)
    cache = candidate.filled(100)
    candidate.append(cache, 1)  # the first drop of a window makes room for the next ones
    result = cache.update_and_fetch(*candidate.layer.tokens(1))
    assert dict(pending(result)) == operations


def test_reference_of_each_kind_is_found() -> None:
    found = {
        target: reference_of(profile(target))
        for target in (
            "mlx_lm.models.cache:KVCache",
            "mlx_lm.models.cache:RotatingKVCache(16)",
            "mlx_lm.models.cache:RotatingKVCache(16, keep=4)",
            "mlx_lm.models.cache:ChunkedKVCache(16)",
            "mlx_lm.models.cache:QuantizedKVCache(32, 4)",
            "mlx_lm.models.cache:BatchKVCache([1, 0])",
            "mlx_lm.models.cache:BatchRotatingKVCache(16, [1, 0])",
        )
    }
    assert [target.partition(":")[2] for target in found.values()] == [
        "KVCache()",
        "SlidingWindowKVCache(16)",
        "SlidingWindowKVCache(16, sinks=4)",
        "ChunkedKVCache(16)",
        "QuantizedKVCache(32, 4)",
        "BatchKVCache([1, 0])",
        "BatchSlidingWindowKVCache(16, [1, 0])",
    ]
    with pytest.raises(TargetError, match="holds no keys and values"):
        reference_of(profile("reference_impl:OffsetCache(5)"))


def test_other_caches_are_measured_as_they_are() -> None:
    concatenates = moved_rows(one("mlx_lm.models.cache:ConcatenateKVCache"), 64)
    assert concatenates[-1] == sum(range(2, 65))
    steps = moved_rows(one("mlx_lm.models.cache:KVCache"), 600)
    assert steps[-1] == 1 + 257 + 513
    batch = moved_rows(one("mlx_lm.models.cache:BatchRotatingKVCache(64, [1, 0])"), 300)
    assert batch[-1] == 1
    mx.clear_cache()
