"""The lines that docs/typing.md gives to authors, under two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx

L: TypeAlias = list[mx.array]


class MyCache:
    def __init__(self, capacity: int) -> None:
        self.offset = 0

    @property
    def state(self) -> tuple[mx.array, ...]:
        return ()

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        return None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values


if TYPE_CHECKING:
    from kvproto import AttentionCache

    _: type[AttentionCache] = MyCache


class ListCache(MyCache):
    def update_and_fetch(self, keys: mx.array, values: mx.array) -> L:  # error[override]
        return [keys, values]


if TYPE_CHECKING:
    __: type[AttentionCache] = ListCache  # error[assignment]
