"""The terminal report: readable without colour and at 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

from conformance.profiles import Answer
from conformance.verdict import Report, Result, Verdict
from kvproto.clause import REGISTRY, SPEC_VERSION, Level

WIDTH = 80

MARKS = {
    Verdict.PASS: (".", "green"),
    Verdict.FAIL: ("F", "bold red"),
    Verdict.SKIP: ("-", "dim"),
    Verdict.EXPECTED_FAILURE: ("x", "yellow"),
    Verdict.UNEXPECTED_PASS: ("X", "bold red"),
    Verdict.BLOCKED: ("b", "yellow"),
    Verdict.ERROR: ("E", "bold magenta"),
    Verdict.NOT_RUN: ("n", "dim"),
}
"""One character a clause; a SHOULD that fails is an ``f``."""


def mark(result: Result) -> tuple[str, str]:
    """The character of a result and its style."""
    if result.verdict is Verdict.FAIL and result.level is not Level.MUST:
        return "f", "yellow"
    return MARKS[result.verdict]


def render(reports: Sequence[Report], *, width: int = WIDTH, failures: bool = True) -> str:
    """The report as plain text, with or without the findings in full."""
    out = StringIO()
    console = Console(file=out, width=width, no_color=True, highlight=False)
    write(reports, console, failures=failures)
    return out.getvalue()


def failure_text(target: str, result: Result) -> str:
    """One finding as plain text, for a message of pytest."""
    out = StringIO()
    console = Console(file=out, width=WIDTH, no_color=True, highlight=False)
    write_failure(target, result, console, WIDTH)
    return out.getvalue()


def write(reports: Sequence[Report], console: Console, *, failures: bool = True) -> None:
    """Print the reports: findings that decide in full, then a table for each subject."""
    width = min(console.width, 100)
    for report in reports:
        for result in report.results:
            if failures and result.breaks(strict=report.strict):
                _line(console, "")
                write_failure(report.target, result, console, width)
    for report in reports:
        _line(console, "")
        write_subject(report, console, width)
    if len(reports) > 1:
        _line(console, "")
        good = sum(report.conforms for report in reports)
        _line(console, f"{good} of {len(reports)} caches conform to kvproto {SPEC_VERSION}")


def write_failure(target: str, result: Result, console: Console, width: int) -> None:
    """One finding: what was broken, who relies on it, what was seen, and a program to run."""
    clause = REGISTRY[result.clause]
    _line(console, _cut(f"{clause.id} {clause.level}  {target}", width), "bold red")
    if result.verdict is Verdict.ERROR:
        _line(console, "  The suite itself went wrong; please report it.")
        for line in result.message.splitlines():
            _line(console, f"  {line}")
        return
    _wrapped(console, f'"{clause.sentence}"', width, "  ")
    _wrapped(console, f"{result.message}.", width, "  ")
    if result.verdict is Verdict.UNEXPECTED_PASS:
        return
    _wrapped(console, result.expected, width, "  expected  ")
    _wrapped(console, result.observed, width, "  observed  ")
    for index, consumer in enumerate(clause.relied_on_by):
        _wrapped(console, consumer, width, "  relied on by  " if not index else " " * 16)
    if clause.faults:
        _wrapped(console, ", ".join(clause.faults), width, "  also broken in  ")
    _line(console, "")
    for line in result.program.splitlines():
        _line(console, f"    {line}".rstrip())


def write_subject(report: Report, console: Console, width: int) -> None:
    """What one subject is, a line for each contract, and the verdict."""
    _line(console, report.target, "bold")
    if report.unusable:
        for line in report.unusable.splitlines():
            _wrapped(console, line, width, "  ")
        _line(console, "  CANNOT BE TESTED", "bold red")
        return
    for name, value, source in report.claims:
        _wrapped(console, f"{value}  ({source})", width, f"  {name + ':':<25}")
    for note in report.notes:
        _wrapped(console, note, width, "  restricted: ")
    write_profiles(report, console, width)
    for contract in REGISTRY.contracts:
        results = [r for r in report.results if REGISTRY.contract_of(r.clause) is contract]
        if not results:
            continue
        text = Text(f"  {contract.name:<10}  ")
        for result in results:
            character, style = mark(result)
            text.append(character, style)
        text.pad_right(max(_COLUMN - len(text.plain), 2))
        told = textwrap.wrap(_told(results), width - _COLUMN) or [""]
        text.append(told[0])
        text.rstrip()
        console.print(text, soft_wrap=True)
        for line in told[1:]:
            _line(console, " " * _COLUMN + line)
    hazards = [r for r in report.results if r.verdict is Verdict.FAIL]
    hazards = [r for r in hazards if not r.breaks(strict=report.strict)]
    if hazards:
        _line(console, "  Hazards (SHOULD; they decide under --strict):")
    for result in hazards:
        text_of = f"{result.message}; expected {result.expected}, observed {result.observed}"
        _wrapped(console, text_of, width, f"    {result.clause:<8}  ")
    _line(console, f"  {_VERDICTS[_kind(report)]}", "bold green" if report.conforms else "bold red")
    _wrapped(console, summary(report), width, "  ")


def write_profiles(report: Report, console: Console, width: int) -> None:
    """Whether each consumer works with the cache, and why not."""
    if report.traits is None or not report.complete:
        return
    _line(console, "  Works with:")
    for name, judgement in report.profiles.items():
        text = Text(f"    {name:<26}")
        text.append(str(judgement.answer), ANSWERS[judgement.answer])
        text.pad_right(max(_REASON - len(text.plain), 1))
        told = "; ".join(finding.reason for finding in judgement.deciding)
        lines = textwrap.wrap(told, width - _REASON, break_on_hyphens=False) or [""]
        text.append(lines[0])
        text.rstrip()
        console.print(text, soft_wrap=True)
        for line in lines[1:]:
            _line(console, " " * _REASON + line)
    _line(console, "  Clauses:")


ANSWERS = {
    Answer.YES: "green",
    Answer.DEGRADED: "yellow",
    Answer.NOT_JUDGED: "dim",
    Answer.NO: "bold red",
}

_REASON = 42
"""Where the reason begins that stands beside a consumer's verdict."""

_COLUMN = 31
"""Where the words begin that stand beside the marks of a contract."""


def _told(results: Sequence[Result]) -> str:
    """What is not plain in a contract's results, in words."""
    if all(result.verdict is Verdict.SKIP for result in results):
        return results[0].message
    words = []
    for result in results:
        if result.verdict is Verdict.FAIL:
            words.append(f"{result.clause} {'FAILS' if result.level is Level.MUST else 'fails'}")
        elif result.verdict not in (Verdict.PASS, Verdict.SKIP, Verdict.BLOCKED):
            words.append(f"{result.clause} {result.verdict}")
    blocked = sum(result.verdict is Verdict.BLOCKED for result in results)
    return ", ".join([*words, *([f"{blocked} blocked"] if blocked else [])])


_VERDICTS = {
    "conforms": f"CONFORMS to kvproto {SPEC_VERSION}",
    "broken": f"DOES NOT CONFORM to kvproto {SPEC_VERSION}",
    "incomplete": "INCOMPLETE: not every clause was run",
}


def _kind(report: Report) -> str:
    if report.broken:
        return "broken"
    return "conforms" if report.conforms else "incomplete"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def summary(report: Report) -> str:
    """How many clauses there are of each verdict."""
    counts = report.counts()
    parts = [
        f"{level}: {counts[level, Verdict.PASS]} pass, {counts[level, Verdict.FAIL]} fail"
        for level in ("MUST", "SHOULD")
    ]
    for verdict, name in (
        (Verdict.BLOCKED, "blocked"),
        (Verdict.EXPECTED_FAILURE, "expected to fail"),
        (Verdict.UNEXPECTED_PASS, "pass unexpectedly"),
        (Verdict.ERROR, "errors of the suite"),
        (Verdict.SKIP, "do not apply"),
        (Verdict.NOT_RUN, "not run"),
    ):
        total = sum(number for (_, found), number in counts.items() if found is verdict)
        if total:
            parts.append(f"{total} {name}")
    return "; ".join(parts)


def _line(console: Console, text: str, style: str | None = None) -> None:
    console.print(Text(text, style=style or ""), soft_wrap=True)


def _wrapped(console: Console, text: str, width: int, first: str) -> None:
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        _line(console, line)
