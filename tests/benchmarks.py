"""Every figure of speed and memory against its target, in one run::

    python -m tests.benchmarks [SECTION ...] [--markdown FILE]

Times are ratios of what alternates in this run; rows, bytes and counts are the same anywhere. The
counted figures are under test in ``test_figures.py``; timings fail no test.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import mlx_lm.models.cache  # noqa: F401 (compared with; fails here and now if it is not there)
from rich.console import Console
from rich.table import Table

from conformance.bench import Candidate, Layer, Result, measure, moved_rows
from conformance.subject import examine, subjects_from_target
from reference_impl import KVCache
from tests.faults import FAULTS
from tests.faults.verdicts import check

ROOT = Path(__file__).parents[1]
EIGHT = "[0, 0, 0, 0, 0, 0, 0, 0]"
PAIRS = (
    ("reference_impl:KVCache()", "mlx_lm.models.cache:KVCache()"),
    ("reference_impl:SlidingWindowKVCache(512)", "mlx_lm.models.cache:RotatingKVCache(512)"),
    ("reference_impl:QuantizedKVCache(64, 8)", "mlx_lm.models.cache:QuantizedKVCache(64, 8)"),
    (f"reference_impl:BatchKVCache({EIGHT})", f"mlx_lm.models.cache:BatchKVCache({EIGHT})"),
    (
        f"reference_impl:BatchSlidingWindowKVCache(512, {EIGHT})",
        f"mlx_lm.models.cache:BatchRotatingKVCache(512, {EIGHT})",
    ),
)


@dataclass(frozen=True)
class Figure:
    """One line: what was measured and what it should be at most."""

    name: str
    measured: float
    target: float
    unit: str = "ratio"

    @property
    def met(self) -> bool:
        return self.measured <= self.target


def ratios() -> Iterator[Figure]:
    """Reference caches beside mlx-lm's, decode, prefill, bytes and the rest."""
    for own, other in PAIRS:
        (subject,) = subjects_from_target(own)
        for item in measure(examine(subject), reference=other):
            if isinstance(item, Result) or item.ratio is None:
                continue
            name = f"{own.partition(':')[2].partition('(')[0]}: {item.name}"
            yield Figure(name, item.ratio, 1.0)


def bare_writes() -> Iterator[Figure]:
    """A decode step of the full cache, growth included, beside the least that any cache does."""
    depth, steps, rounds = 16384, 256, 7
    layer = Layer(1, 8, 128, 128, "float16")
    token = layer.tokens(1)
    (subject,) = subjects_from_target("reference_impl:KVCache()")
    cache = Candidate(examine(subject), layer).filled(depth)

    def least(*, views: bool) -> Callable[[], float]:
        keys, values = (mx.zeros((1, 8, depth + steps * rounds, 128), mx.float16) for _ in "kv")
        mx.eval(keys, values)
        held = depth

        def once() -> float:
            nonlocal held
            begun = time.perf_counter()
            for _ in range(steps):
                keys[:, :, held : held + 1] = token[0]
                values[:, :, held : held + 1] = token[1]
                held += 1
                if views:
                    mx.eval(keys[:, :, :held], values[:, :, :held])
                else:
                    mx.eval(keys, values)
            return time.perf_counter() - begun

        return once

    def ours() -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            mx.eval(cache.update_and_fetch(*token))
        return time.perf_counter() - begun

    writes, with_views = least(views=False), least(views=True)
    rows = [(ours(), writes(), with_views()) for _ in range(rounds)]
    for index, name in ((1, "two bare slice writes"), (2, "two writes and the two views returned")):
        ratio = statistics.median(row[0] / row[index] for row in rows)
        yield Figure(f"KVCache: decode step at 16k beside {name}", ratio, 1.25)


def counts() -> Iterator[Figure]:
    """Rows copied by growth, and memory held, for each token."""
    (subject,) = subjects_from_target("reference_impl:KVCache()")
    tokens = 32768
    candidate = Candidate(examine(subject), Layer(1, 1, 8, 8, "float16"))
    moved = moved_rows(candidate, tokens)
    yield Figure(
        f"KVCache: rows copied for each of {tokens} appends", moved[-1] / tokens, 3, "rows"
    )
    cache, worst = KVCache(), 0.0
    token = mx.zeros((1, 1, 1, 8)), mx.zeros((1, 1, 1, 8))
    for held in range(1, 4097):
        cache.update_and_fetch(*token)
        spare = cache.nbytes / (2 * 8 * 4) - held
        worst = max(worst, (spare - 33) / held)
    yield Figure("KVCache: bytes for each byte of tokens, beyond one step", 1 + worst, 1.5, "bytes")


def suite() -> Iterator[Figure]:
    """The suite on one attention cache, and on all reference caches."""
    for effort, most in (("default", 15.0), ("quick", 5.0)):
        seconds = run("-m", "conformance", "check", "reference_impl:KVCache", "--effort", effort)
        yield Figure(f"kvproto check KVCache, {effort} effort", seconds, most, "s")
    seconds = run("-m", "pytest", "--pyargs", "conformance", "-q", "-n", "2", "-c", "/dev/null")
    yield Figure("all reference caches, default effort, -n 2", seconds, 60, "s")


def counterexamples() -> Iterator[Figure]:
    """From the start of a check to the shrunk counterexample, for every seventh fault."""
    seconds = []
    for fault in FAULTS[::7]:
        begun = time.perf_counter()
        check(fault, fault.clause)
        seconds.append(time.perf_counter() - begun)
    yield Figure("shrunk counterexample, median fault", statistics.median(seconds), 3, "s")
    yield Figure("shrunk counterexample, worst fault", max(seconds), 15, "s")


def imports() -> Iterator[Figure]:
    """What an import costs beyond what it stands on."""
    for name, module, base in (
        ("import kvproto, beyond typing_extensions", "kvproto", "typing_extensions"),
        ("the plugin in an unrelated pytest run, beyond pytest", "_kvproto_pytest", "pytest"),
    ):
        pairs = [(importing(base, module), importing(base)) for _ in range(9)]
        extra = statistics.median(with_it - without for with_it, without in pairs)
        yield Figure(name, extra * 1000, 20, "ms")


def importing(*modules: str) -> float:
    return run("-c", f"import {', '.join(modules)}")


def run(*arguments: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
    return time.perf_counter() - begun


SECTIONS: dict[str, Callable[[], Iterator[Figure]]] = {
    "counts": counts,
    "imports": imports,
    "bare": bare_writes,
    "ratios": ratios,
    "suite": suite,
    "counterexamples": counterexamples,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args()
    console = Console(highlight=False)
    figures: list[Figure] = []
    for name in options.sections or SECTIONS:
        with console.status(name):
            for figure in SECTIONS[name]():
                figures.append(figure)
    table = Table(box=None, width=80)
    table.add_column("figure", overflow="fold")
    for heading in ("measured", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        table.add_row(figure.name, *cells(figure))
    console.print(table)
    if options.markdown:
        lines = ["| figure | measured | target | |", "|---|---|---|---|"]
        lines += [f"| {one.name} | {' | '.join(cells(one))} |" for one in figures]
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def cells(figure: Figure) -> tuple[str, str, str]:
    unit = "" if figure.unit == "ratio" else f" {figure.unit}"
    return (
        f"{figure.measured:.2f}{unit}",
        f"{figure.target:g}{unit}",
        "" if figure.met else "missed",
    )


if __name__ == "__main__":
    sys.exit(main())
