"""Classes of every style that satisfy the protocols. mypy accepts every line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import mlx.core as mx
from typing_extensions import Never

from kvproto import (
    AffineTriple,
    AttentionCache,
    DataFreeCache,
    Decodes,
    HasOffset,
    HasState,
    MakesAttentionMask,
    Mergeable,
    PromptCache,
    Trimmable,
    UpdatesAndFetches,
)


class ByAttribute:
    offset: int = 0


class ByProperty:
    @property
    def offset(self) -> int:
        return 0


class BySlot:
    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = 0


class ByClassVariable:
    offset: ClassVar[int] = 0


class Narrower:
    @property
    def offset(self) -> bool:
        return False


positions: list[HasOffset[int]] = [ByAttribute(), ByProperty(), BySlot()]
class_variable: HasOffset[int] = ByClassVariable()  # error[]: pyright pyrefly
# Covariant: a narrower position is a position, and int one of the two.
narrower: HasOffset[int] = Narrower()
one_of_two: HasOffset[int | mx.array] = ByProperty()


class KeywordsOfTheirOwnOrder:
    def make_mask(
        self, n: int, window_size: int | None = None, return_array: bool = False
    ) -> Literal["causal"] | None:
        return None


class AnyKeywords:
    def make_mask(self, N: int, return_array: bool = False, **options: Any) -> mx.array:
        return mx.array(N)


class AnyArguments:
    def make_mask(self, *args: Any, **kwargs: Any) -> mx.array | None:
        return None


masks: list[MakesAttentionMask] = [KeywordsOfTheirOwnOrder(), AnyKeywords(), AnyArguments()]


class OtherNames:
    """The names of positional arguments are nobody's business."""

    def update_and_fetch(self, k: mx.array, v: mx.array) -> tuple[mx.array, mx.array]:
        return k, v


class MoreArguments:
    def update_and_fetch(
        self, keys: mx.array, values: mx.array, layer: int = 0
    ) -> tuple[mx.array, mx.array]:
        return keys, values


class Triples:
    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[AffineTriple, AffineTriple]:
        return mx.quantize(keys), mx.quantize(values)


updates: list[UpdatesAndFetches[mx.array]] = [OtherNames(), MoreArguments()]
triples: UpdatesAndFetches[AffineTriple] = Triples()


class Single:
    def __init__(self) -> None:
        self.offset = 0

    @property
    def state(self) -> tuple[mx.array, ...]:
        return ()

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> Literal["causal"] | None:
        return None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values

    def write_token(self, k: mx.array, v: mx.array) -> None: ...

    def get_kv(self, window: int | None = None) -> tuple[mx.array, mx.array]:
        return mx.array(0), mx.array(0)

    def reset(self) -> None: ...

    def is_trimmable(self) -> bool:
        return True

    def trim(self, count: int) -> int:
        return count

    @classmethod
    def merge(cls, caches: Sequence[Single]) -> list[Single]:
        return list(caches)


attention: AttentionCache = Single()
decodes: Decodes[mx.array] = Single()
trimmable: Trimmable = Single()
mergeable: Mergeable = Single()


class Shim:
    """A data-free cache of an author who typed only the result."""

    offset = 0

    @property
    def state(self) -> tuple[()]:
        return ()

    def make_mask(
        self, N: int, *, return_array: bool = False, window_size: int | None = None
    ) -> None: ...

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Never:
        raise RuntimeError


data_free: DataFreeCache = Shim()


def evaluate(caches: PromptCache) -> None: ...
def build(make: Callable[[], AttentionCache], layers: int) -> Sequence[AttentionCache]:
    return [make() for _ in range(layers)]


of_one_class = [Single(), Single()]
evaluate(of_one_class)
evaluate(build(Single, 2))
states: list[HasState] = [Single(), Shim()]
evaluate(states)
