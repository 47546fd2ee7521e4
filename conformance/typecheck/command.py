"""The ``kvproto typecheck`` command: one table a class, protocol by protocol."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.target import TargetError, parse
from conformance.typecheck.judge import Judged, Verdict, judge
from conformance.typecheck.protocols import ALL, CAPABILITIES, KINDS


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "typecheck",
        help="which protocols a class satisfies, by mypy, without running it",
        description="Ask mypy which protocols a class satisfies. Neither the class nor its package "
        "is imported. Exit status: 0 if it satisfies the protocols of --as, or one kind of cache "
        "if there is no --as; 1 if not; 2 if it cannot be told.",
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument(
        "--as",
        dest="wanted",
        action="append",
        default=[],
        metavar="PROTOCOL",
        help="what it is meant to be, as in AttentionCache or 'HasOffset[int]'; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--python-version", metavar="X.Y", help="the Python to check for")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the targets of a command line; returns the exit status."""
    wanted = [_known(name) for name in options.wanted]
    results = judge(
        [parse(text) for text in options.targets],
        Path.cwd(),
        python_version=options.python_version,
    )
    passes = [is_met(result, wanted) for result in results]
    if options.json:
        rows = [
            {**asdict(result), "passes": ok} for result, ok in zip(results, passes, strict=True)
        ]
        print(json.dumps({"wanted": wanted, "targets": rows}, indent=2))
    else:
        console = Console(highlight=False)
        for result in results:
            write(result, wanted, console)
    return int(not all(passes))


def _known(name: str) -> str:
    for one in ALL:
        if name in (one.annotation, one.annotation.partition("[")[0]):
            return one.annotation
    raise TargetError(
        f"--as {name!r}: no such protocol; there are {', '.join(one.annotation for one in ALL)}."
    )


def is_met(result: Judged, wanted: Sequence[str]) -> bool:
    """Whether a class satisfies all that is wanted of it, or, if nothing is, one kind."""
    if wanted:
        return all(result.satisfies(protocol) for protocol in wanted)
    return any(result.satisfies(kind.annotation) for kind in KINDS)


def nearest(result: Judged) -> Verdict:
    """The verdict on the kind of which the fewest members are missing or conflict."""
    kinds = {kind.annotation: kind for kind in KINDS}
    return min(
        (v for v in result.verdicts if v.protocol in kinds),
        key=lambda v: (
            (len(v.missing) + len(v.conflicting)) / len(kinds[v.protocol].members),
            len(v.missing),
        ),
    )


def write(result: Judged, wanted: Sequence[str], console: Console) -> None:
    """Print the table of one class."""
    console.print(f"\n{result.target}", markup=False, soft_wrap=True)
    if result.opaque:
        console.print(
            "mypy accepts any member of this class: it has a base class that mypy cannot see "
            "(an import that is not found or not typed), or a __getattr__. It cannot be told which "
            "protocols it satisfies."
        )
        return
    for title, protocols in (("capabilities", CAPABILITIES), ("kinds of cache", KINDS)):
        table = Table(box=None, pad_edge=False)
        table.add_column(title, no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("why, and who relies on it", overflow="fold")
        for one in protocols:
            verdict = next(v for v in result.verdicts if v.protocol == one.annotation)
            why = _why(verdict, one.without) if protocols is CAPABILITIES else _parts(verdict)
            table.add_row(escape(one.annotation), verdict.word, escape(why))
        console.print(table)
    _write_limits(result, console)
    if not is_met(result, wanted):
        failed = [p for p in wanted if not result.satisfies(p)] or [nearest(result).protocol]
        for protocol in failed:
            verdict = next(v for v in result.verdicts if v.protocol == protocol)
            start = "is not" if wanted else "is no kind of cache; the nearest is"
            console.print(f"It {start} {protocol}:", markup=False)
            for name in verdict.missing:
                console.print(f"  no {name}", markup=False)
            if verdict.conflicting or not verdict.missing:
                console.print(f"  {verdict.reason}", markup=False, soft_wrap=True)


def _why(verdict: Verdict, without: str) -> str:
    if verdict.satisfied:
        return f"not checked: {', '.join(verdict.unchecked)}" if verdict.unchecked else ""
    parts = []
    if verdict.missing:
        parts.append(f"no {', '.join(verdict.missing)}")
    if verdict.conflicting or not verdict.missing:
        parts.append(f"mypy: {_shortened(verdict.reason)}")
    parts.append(f"without it: {without}")
    return "\n".join(parts)


def _parts(verdict: Verdict) -> str:
    """Of a kind: its members alone, for the reasons stand beside its capabilities."""
    parts = []
    if verdict.missing:
        parts.append(f"no {', '.join(verdict.missing)}")
    if verdict.conflicting:
        parts.append(f"conflicting: {', '.join(verdict.conflicting)}")
    return "; ".join(parts)


def _shortened(reason: str) -> str:
    """mypy's reason without the sentence that every one begins with, and on fewer lines."""
    first, _, rest = reason.partition("\n")
    lines = [line.strip() for line in (rest or first).splitlines()]
    return " ".join(lines)


def _write_limits(result: Judged, console: Console) -> None:
    unchecked = sorted({name for v in result.verdicts for name in v.unchecked})
    if unchecked:
        console.print(
            f"Not checked: {', '.join(unchecked)}. They are not annotated, or with Any; mypy knows "
            "that they are there and how they are called, not what they give. Only "
            "`kvproto check` can tell.",
            markup=False,
        )
    if result.differing:
        console.print("With --check-untyped-defs, mypy's verdicts differ:")
        for verdict in result.differing:
            shown = f" ({_shortened(verdict.reason)})" if verdict.reason else ""
            console.print(
                f"  {verdict.protocol}: {verdict.word}{shown}", markup=False, soft_wrap=True
            )
