"""Measure a cache beside the reference of its kind: ``kvproto bench TARGET``.

Times are compared in rounds that alternate between the two caches, and given as the median of the
rounds' ratios: machines are noisy, and only what ran side by side compares. Rows and bytes are
counted, not timed, and are the same on every machine.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from rich.console import Console
from rich.table import Table

from conformance.checks.restore import Dialect
from conformance.graph import makes_new_buffer
from conformance.subject import Claims, Profile, examine, subjects_from_target
from conformance.target import TargetError
from conformance.trace import Run, reachable_arrays
from kvproto.visibility import Chunk, Full, Sinks, SlidingWindow

HEADS, HEAD_DIM, DTYPE = 8, 128, "float16"
"""The shape of a layer of an 8B model; a cache that declares another gets that."""
CHUNK = 512
"""Tokens a prefill chunk."""
STEPS = 64
"""Decode steps in a round; a multiple of them crosses the growth steps of the caches seen."""
DEPTHS = (256, 4096, 16384)
GROWN = 8192
"""Tokens appended one by one while rows are counted."""


@dataclass(frozen=True)
class Layer:
    """What is appended: rows of these sizes."""

    batch: int
    heads: int
    key_dim: int
    value_dim: int
    dtype: str

    @classmethod
    def of(cls, claims: Claims, *, small: bool = False) -> Layer:
        """A real layer's sizes, or the smallest; within what the cache declares."""
        declared = "head_dims" in claims.sources
        key_dim, value_dim = claims.head_dims[0] if declared else (HEAD_DIM, HEAD_DIM)
        heads = claims.heads if "heads" in claims.sources else HEADS
        dtype = DTYPE if DTYPE in claims.dtypes else claims.dtypes[0]
        batch = claims.batch_sizes[0] if claims.left_padding is not None else 1
        if small:
            heads = claims.heads if "heads" in claims.sources else 1
            key_dim, value_dim = (key_dim, value_dim) if declared else (8, 8)
        return cls(batch, heads, key_dim, value_dim, dtype)

    def tokens(self, count: int) -> tuple[mx.array, mx.array]:
        """Random keys and values, evaluated."""
        dtype = getattr(mx, self.dtype)
        rows = [
            mx.random.normal((self.batch, self.heads, count, dim)).astype(dtype)
            for dim in (self.key_dim, self.value_dim)
        ]
        mx.eval(rows)
        return rows[0], rows[1]

    @property
    def bytes_of_token(self) -> int:
        size: int = getattr(mx, self.dtype).size
        return self.batch * self.heads * (self.key_dim + self.value_dim) * size

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, {self.heads} KV heads, head dim {self.key_dim}"
            f"{'' if self.key_dim == self.value_dim else f'/{self.value_dim}'}, {self.dtype}"
        )


class Candidate:
    """One of the two caches that are compared."""

    def __init__(self, profile: Profile, layer: Layer) -> None:
        self.profile = profile
        self.layer = layer
        self.members = profile.capabilities.members
        self._tokens: dict[int, tuple[mx.array, mx.array]] = {}

    @property
    def name(self) -> str:
        return self.profile.subject.target

    def append(self, cache: Any, count: int) -> None:
        """One step as a model takes it, evaluated."""
        if count not in self._tokens:
            self._tokens[count] = self.layer.tokens(count)
        if "maybe_trim_front" in self.members:
            cache.maybe_trim_front()
        mx.eval(cache.update_and_fetch(*self._tokens[count]))

    def filled(self, tokens: int) -> Any:
        """A cache that was fed this many tokens, in prefill chunks."""
        cache = self.profile.subject.factory()
        while tokens > 0:
            self.append(cache, min(tokens, CHUNK))
            tokens -= CHUNK
        return cache


Round = Callable[[], float]
"""Runs one round and returns the seconds of one operation."""


def _clock(count: int, function: Callable[[], None]) -> float:
    started = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - started) / count


def decode(depth: int) -> Callable[[Candidate], Round]:
    """Decode steps, growth included, on a cache of this many tokens."""

    def prepare(one: Candidate) -> Round:
        cache = one.filled(depth)
        return lambda: _clock(STEPS, lambda: one.append(cache, 1))

    return prepare


def prefill(one: Candidate) -> Round:
    def once() -> None:
        one.filled(8 * CHUNK)

    once()
    return lambda: _clock(1, once)


def trim(one: Candidate) -> Round:
    """Take one token back and append another, as speculative decoding does."""
    cache = one.filled(CHUNK)

    def once() -> None:
        if cache.trim(1) != 1:
            raise RuntimeError(f"trim(1) after {CHUNK} tokens removes nothing")
        one.append(cache, 1)

    return lambda: _clock(STEPS, once)


def deepcopy(one: Candidate) -> Round:
    """Copy a cache, and append to the copy."""
    cache = one.filled(8 * CHUNK)

    def once() -> None:
        one.append(copy.deepcopy(cache), 1)

    return lambda: _clock(4, once)


def restore(one: Candidate) -> Round:
    """Save the state to memory, restore a cache from it, and append."""
    cache = one.filled(8 * CHUNK)
    run = Run(one.profile, masks=False)
    run.cache = cache
    dialect = Dialect(run)

    def once() -> None:
        state, meta = dialect.read(cache)
        one.append(dialect.restore(run, cache, state, meta), 1)

    return lambda: _clock(4, once)


def merge(one: Candidate) -> Round:
    """Merge four caches of different lengths, take one decode step, extract a row."""
    members = [one.filled(CHUNK + 16 * index) for index in range(4)]
    keys, values = one.layer.tokens(1)
    token = mx.concatenate([keys] * 4), mx.concatenate([values] * 4)

    def once() -> None:
        batch = type(members[0]).merge(members)
        mx.eval(batch.update_and_fetch(*token))
        mx.eval(batch.extract(1).state)

    return lambda: _clock(2, once)


@dataclass
class Row:
    """One line of the table."""

    name: str
    unit: str
    own: float | None
    """Of the cache under test, in microseconds, rows or bytes; None where it has no such thing."""
    reference: float | None
    ratio: float | None
    reading: str


def compare(
    name: str,
    prepare: Callable[[Candidate], Round],
    own: Candidate,
    reference: Candidate,
    rounds: int,
) -> Row:
    """A timed row: the median of the ratios of rounds that alternate."""
    made: list[Round] = []
    for one in (own, reference):
        try:
            made.append(prepare(one))
            made[-1]()  # the first round allocates and compiles
        except Exception as error:
            who = "yours" if one is own else "the reference"
            return Row(
                name, "us", None, None, None, f"{who} raises {type(error).__name__}: {error}"
            )
    gc.collect()
    pairs = [(made[0](), made[1]()) for _ in range(rounds)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    mine, other = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    return Row(name, "us", mine, other, ratio, _told(ratio))


def _told(ratio: float) -> str:
    if ratio <= 0.9:
        return f"{1 / ratio:.1f} times as fast"
    if ratio <= 1.1:
        return "as fast"
    return f"takes {ratio:.1f} times as long"


def moved_rows(one: Candidate, tokens: int = GROWN) -> list[int]:
    """Rows copied so far after each of ``tokens`` one-token appends.

    Counted off the lazy graph: an append whose result is not written in place, or viewed, fills
    a new buffer with all rows held.
    """
    small = Candidate(one.profile, Layer.of(one.profile.claims, small=True))
    cache = small.profile.subject.factory()
    token = small.layer.tokens(1)
    window = getattr(one.profile.claims.visibility, "window", tokens)
    moved = 0
    counts: list[int] = []
    for _ in range(tokens):
        if "maybe_trim_front" in small.members:
            cache.maybe_trim_front()
        cache.update_and_fetch(*token)
        arrays = reachable_arrays(cache)
        held = max((array.shape[-2] for array in arrays if array.ndim >= 3), default=0)
        if makes_new_buffer(arrays, min(held, len(counts) + 1)):
            moved += min(held, len(counts) + 1, window)
        counts.append(moved)
        mx.eval(arrays)
    return counts


def growth(own: Candidate, reference: Candidate) -> Row:
    mine, other = moved_rows(own), moved_rows(reference)
    ratio = mine[-1] / max(other[-1], 1)
    quarter = max(mine[len(mine) // 4 - 1], 1)
    reading = "in proportion to the tokens"
    if mine[-1] > 3 * GROWN:
        reading = f"{mine[-1] / GROWN:.0f} rows an append"
        if mine[-1] / quarter > 8:  # four times the tokens: 4 if linear, 16 if quadratic
            reading = f"grows quadratically: {ratio:.0f} times the rows"
    name = f"rows copied, {GROWN} appends"
    return Row(name, "rows", mine[-1], other[-1], ratio, reading)


def memory(own: Candidate, reference: Candidate, tokens: int = 4096 + 1) -> Row:
    """Bytes held, against those of the tokens that the next query can see."""
    held = []
    for one in (own, reference):
        arrays = {id(array): array for array in reachable_arrays(one.filled(tokens))}
        held.append(sum(array.nbytes for array in arrays.values()))
    window = getattr(own.profile.claims.visibility, "window", tokens)
    needed = own.layer.bytes_of_token * min(window, tokens)
    ratio = held[0] / max(held[1], 1)
    reading = f"{held[0] / needed:.2f} times the visible tokens in {own.layer.dtype}"
    return Row(f"bytes held, {tokens} tokens", "bytes", held[0], held[1], ratio, reading)


def reference_of(profile: Profile) -> str:
    """The target of the reference cache of the same kind.

    Raises:
        TargetError: there is none, for it holds no tokens.
    """
    claims, found = profile.claims, profile.capabilities
    visibility = claims.visibility
    if not found.storage_backed:
        raise TargetError(
            f"{profile.subject.target} holds no keys and values, so there is nothing to measure."
        )
    if found.opaque:
        return "reference_impl:RotatedKVCache()"
    if found.quantized:
        cache = profile.subject.factory()
        return f"reference_impl:QuantizedKVCache({cache.group_size}, {cache.bits})"
    padding = None if claims.left_padding is None else list(claims.left_padding)
    if isinstance(visibility, Sinks) and padding is None:
        window, sinks = visibility.window, visibility.sinks
        return f"reference_impl:SlidingWindowKVCache({window}, sinks={sinks})"
    if isinstance(visibility, SlidingWindow):
        if padding is not None:
            return f"reference_impl:BatchSlidingWindowKVCache({visibility.window}, {padding})"
        return f"reference_impl:SlidingWindowKVCache({visibility.window})"
    if isinstance(visibility, Chunk):
        return f"reference_impl:ChunkedKVCache({visibility.chunk})"
    if padding is not None:
        return f"reference_impl:BatchKVCache({padding})"
    assert isinstance(visibility, Full) or claims.lossy
    return "reference_impl:KVCache()"


@dataclass
class Result:
    """The rows measured for one cache."""

    target: str
    reference: str
    layer: str
    rows: list[Row]


def measure(
    profile: Profile, *, reference: str | None = None, rounds: int = 7
) -> Iterator[Row | Result]:
    """Measure a cache row by row; the last item is the whole result.

    Args:
        profile: what :func:`conformance.subject.examine` gives.
        reference: target to compare with; by default the reference cache of the same kind.
        rounds: of each timed comparison.

    Raises:
        TargetError: the cache holds no tokens, or ``reference`` cannot be used.
    """
    (subject,) = subjects_from_target(reference or reference_of(profile))
    other = examine(subject)
    layer = Layer.of(profile.claims)
    own, beside = Candidate(profile, layer), Candidate(other, layer)
    both = own.members & beside.members
    timed: list[tuple[str, Callable[[Candidate], Round]]] = [
        (f"decode step, {depth} held", decode(depth)) for depth in DEPTHS
    ]
    timed.append((f"prefill, {8 * CHUNK} tokens", prefill))
    if "trim" in both and isinstance(profile.claims.visibility, Full):
        timed.append(("trim 1, append 1", trim))
    timed.append(("deepcopy, append 1", deepcopy))
    if profile.restores and other.restores:
        timed.append(("restore, append 1", restore))
    if {"merge"} <= both and layer.batch == 1:
        timed.append(("merge 4, step, extract 1", merge))
    rows: list[Row] = []
    for count in (growth, memory):
        rows.append(count(own, beside))
        yield rows[-1]
    for name, prepare in timed:
        rows.append(compare(name, prepare, own, beside, rounds))
        yield rows[-1]
    yield Result(profile.subject.target, beside.name, str(layer), rows)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure a cache beside the reference of its kind",
        description="Measure a cache beside the reference of its kind, in one run: time, rows "
        "copied by growth, bytes held. Times of one run compare; those of two runs do not.",
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--against", metavar="TARGET", help="another cache to compare with")
    parser.add_argument("--rounds", type=int, default=7, help="of each timed comparison")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure the targets of a command line and print a table for each."""
    if options.rounds < 1:
        raise TargetError(f"--rounds must be at least 1, got {options.rounds}.")
    console = Console(highlight=False)
    progress = Console(stderr=True, highlight=False)
    results = []
    for text in options.targets:
        for subject in subjects_from_target(text, directory=Path.cwd()):
            for item in measure(examine(subject), reference=options.against, rounds=options.rounds):
                if isinstance(item, Result):
                    results.append(item)
                elif progress.is_terminal:
                    progress.print(f"{subject.target}: {item.name}", style="dim")
            write(results[-1], console)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=2) + "\n")
    return 0


def write(result: Result, console: Console) -> None:
    """Print one cache's table, 80 columns wide or less."""
    console.print(f"\n{result.target} (yours)", markup=False, soft_wrap=True)
    console.print(f"{result.reference} (reference)", markup=False, soft_wrap=True)
    console.print(result.layer)
    table = Table(box=None, pad_edge=False, width=80)
    table.add_column("", no_wrap=True)
    for name in ("yours", "reference", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in result.rows:
        table.add_row(
            row.name,
            *(_shown(v, row.unit) for v in (row.own, row.reference)),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.reading,
        )
    console.print(table)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "us":
        return f"{value:.1f} us" if value < 1000 else f"{value / 1000:.1f} ms"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{name}{'B' if unit == 'bytes' else ''}"
    return f"{value:.0f}{' B' if unit == 'bytes' else ''}"
