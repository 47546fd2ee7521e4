"""The threads contract on a cache that is made for mx.compile."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance import Verdict, check


class FixedBuffers:
    """All that changes is an array in a list that is replaced in place; room for 128 tokens."""

    compilable = True
    capacity = 128

    def __init__(self) -> None:
        self._state: list[mx.array] = [mx.array(0)]

    @property
    def offset(self) -> mx.array:
        return self._state[0]

    @property
    def state(self) -> list[mx.array]:
        return self._state

    def make_mask(
        self, N: int, *, return_array: bool = False, window_size: int | None = None
    ) -> Any:
        keys, queries = mx.arange(self.capacity), self.offset + mx.arange(N)[:, None]
        return (keys <= queries) & (keys > queries - (window_size or self.capacity))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        offset, *held = self._state
        for index, rows in enumerate((keys, values)):
            if len(held) == index:
                batch, heads, _, dim = rows.shape
                held.append(mx.zeros((batch, heads, self.capacity, dim), rows.dtype))
            held[index] = mx.slice_update(held[index], rows, offset[None], axes=(2,))
        self._state[:] = [offset + keys.shape[2], *held]
        return held[0], held[1]


def test_a_cache_that_is_made_for_it_compiles() -> None:
    report = check(FixedBuffers, claims={"captured": True}, clauses=["RUN-2"])
    assert report["RUN-2"].verdict is Verdict.PASS, report["RUN-2"]
    assert report["RUN-2"].examples == 2
