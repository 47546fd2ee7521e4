"""Visibility: which logged tokens a query may attend.

Positions are absolute: token j is the j-th real token of its row, and a query at position i is
made from token i itself. A cache may *retain* more than is visible; then its mask hides the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


def _at_least(cls: str, name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{cls}: {name} must be an int of at least {least}, got {value!r}")


@dataclass(frozen=True)
class Full:
    """Every token up to the query itself: ``j <= i``."""

    def sees(self, query: int, key: int) -> bool:
        return key <= query

    def narrowed(self, window_size: int) -> SlidingWindow:
        """What ``make_mask(..., window_size=window_size)`` asks of such a cache."""
        return SlidingWindow(window_size)

    def __str__(self) -> str:
        return "full"


@dataclass(frozen=True)
class SlidingWindow:
    """The last ``window`` tokens, the query's own included: ``i - window < j <= i``.

    Source: Mistral 7B (arXiv:2310.06825), section 2; ``window_size`` in mlx-lm counts likewise.
    """

    window: int

    def __post_init__(self) -> None:
        _at_least("SlidingWindow", "window", self.window, 1)

    def sees(self, query: int, key: int) -> bool:
        return query - self.window < key <= query

    def narrowed(self, window_size: int) -> SlidingWindow:
        return SlidingWindow(min(self.window, window_size))

    def __str__(self) -> str:
        return f"window({self.window})"


@dataclass(frozen=True)
class Sinks:
    """Attention sinks: the first ``sinks`` tokens and the last ``window - sinks`` ones.

    ``window`` is the total budget, sinks included, as ``max_size`` is in mlx-lm's
    ``RotatingKVCache(max_size, keep)``. Source: StreamingLLM (arXiv:2309.17453).
    """

    sinks: int
    window: int

    def __post_init__(self) -> None:
        _at_least("Sinks", "sinks", self.sinks, 1)
        _at_least("Sinks", "window", self.window, self.sinks + 1)

    def sees(self, query: int, key: int) -> bool:
        return key <= query and (key < self.sinks or query - (self.window - self.sinks) < key)

    def narrowed(self, window_size: int) -> Sinks | None:
        """Itself for its own window; what another window means beside sinks is not specified."""
        return self if window_size == self.window else None

    def __str__(self) -> str:
        return f"sinks({self.sinks}, {self.window})"


@dataclass(frozen=True)
class Chunk:
    """Chunked attention: the tokens of the query's own chunk up to itself.

    Source: the ``attention_chunk_size`` of Llama 4.
    """

    chunk: int

    def __post_init__(self) -> None:
        _at_least("Chunk", "chunk", self.chunk, 1)

    def sees(self, query: int, key: int) -> bool:
        return key <= query and key // self.chunk == query // self.chunk

    def narrowed(self, window_size: int) -> Chunk:
        return self

    def __str__(self) -> str:
        return f"chunk({self.chunk})"


@dataclass(frozen=True)
class Lossy:
    """The cache's own policy chooses (eviction, merging). It owes only the query's own past,
    itself included, and never padding; ``sees`` tells what is allowed, not what is required."""

    def sees(self, query: int, key: int) -> bool:
        return key <= query

    def narrowed(self, window_size: int) -> Lossy:
        return self

    def __str__(self) -> str:
        return "lossy"


Visibility: TypeAlias = Full | SlidingWindow | Sinks | Chunk | Lossy


def parse_visibility(text: str) -> Visibility:
    """Read the notation that reports print: ``full``, ``window(8)``, ``sinks(2, 8)``,
    ``chunk(8)`` or ``lossy``.

    Raises:
        ValueError: the text is none of these, or its numbers make no sense.
    """
    name, _, rest = text.strip().partition("(")
    numbers = rest.rstrip(")").split(",") if rest else []
    try:
        arguments = [int(number) for number in numbers]
    except ValueError:
        arguments = [-1]
    forms: dict[tuple[str, int], type[Visibility]] = {
        ("full", 0): Full,
        ("window", 1): SlidingWindow,
        ("sinks", 2): Sinks,
        ("chunk", 1): Chunk,
        ("lossy", 0): Lossy,
    }
    form = forms.get((name, len(arguments)))
    if form is None:
        raise ValueError(
            f"{text!r} is no visibility; write full, window(W), sinks(K, W), chunk(C) or lossy"
        )
    return form(*arguments)
