"""The ``kvproto`` command."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from conformance import bench
from conformance.candidates import candidates
from conformance.config import Options, configured_caches, default_caches
from conformance.engine import CHECKS, EXAMPLES
from conformance.profiles import CONSUMERS, Answer
from conformance.report import html
from conformance.report.terminal import write
from conformance.subject import Named
from conformance.target import TargetError
from conformance.typecheck import command as typecheck
from conformance.verdict import Report, Result, reports_to_json
from kvproto.clause import REGISTRY, SPEC_VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 conforms, 1 does not, 2 bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except TargetError as error:
        print(f"kvproto: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvproto",
        description="The written, typed and tested protocol of KV caches on MLX.",
    )
    parser.add_argument("--version", action="version", version=f"kvproto {SPEC_VERSION}")
    commands = parser.add_subparsers(dest="command", title="commands")

    check = commands.add_parser(
        "check",
        help="run the conformance suite, apart from any pytest settings",
        description="Run the conformance suite on caches. It reads no pytest settings, conftest "
        "or fixture, so that a project's own cannot get in the way.",
    )
    check.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="package.module:Name, package.module:Name(8, keep=2) or path/to/file.py:Name; "
        "without one, the caches of [[tool.kvproto.cache]] in pyproject.toml, or the reference "
        "implementations",
    )
    check.add_argument("--effort", choices=list(EXAMPLES), default="default")
    check.add_argument("--strict", action="store_true", help="SHOULD clauses decide, too")
    check.add_argument("--clause", action="append", metavar="ID", help="only this clause")
    check.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the cache claims to be, as in visibility='window(8)' or batch_sizes=[1]",
    )
    check.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    check.add_argument(
        "--repro", type=Path, metavar="DIR", help="write each counterexample as a program"
    )
    check.add_argument("--seed", default="", help="another seed, for exploring; 'random' draws one")
    check.add_argument("--device", choices=("cpu", "gpu"), help="MLX's default device")
    check.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long a cache may take for one example before it counts as hanging (30)",
    )
    check.add_argument("--quiet", "-q", action="store_true", help="no progress")
    check.set_defaults(run=_check)

    explain = commands.add_parser(
        "explain",
        help="what a clause says, why, and who relies on it; or what a consumer needs",
    )
    explain.add_argument(
        "clause", metavar="ID", help="a clause, as TRIM-3, or a consumer, as mlx-lm:speculative"
    )
    explain.set_defaults(run=_explain)

    listing = commands.add_parser("list", help="every clause with its test and its public faults")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=_list)

    bench.add_parser(commands)
    typecheck.add_parser(commands)
    html.add_parser(commands)
    return parser


def _caches(options: argparse.Namespace, directory: Path) -> list[Named]:
    claims = dict(_claim(text) for text in options.claim)
    if options.targets:
        return [Named(text, directory, claims) for text in options.targets]
    if claims:
        raise TargetError("--claim needs a target that makes the claim.")
    return configured_caches(directory) or default_caches()


def _claim(text: str) -> tuple[str, object]:
    import ast

    name, equals, value = text.partition("=")
    if not equals:
        raise TargetError(f"--claim {text!r} is not of the form NAME=VALUE.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _check(options: argparse.Namespace) -> int:
    run = Options.of(
        effort=options.effort,
        seed=options.seed,
        strict=options.strict,
        device=options.device,
        timeout=options.timeout,
        json=options.json,
        repro=options.repro,
    )
    found = candidates(_caches(options, Path.cwd()))
    clauses = [_known(name) for name in options.clause or REGISTRY]
    console = Console(highlight=False)
    reports = []
    shows = not options.quiet and console.is_terminal
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[clause]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not shows,
    ) as progress:
        for candidate in found:
            if candidate.unusable:
                reports.append(candidate.unusable_report(run))
                continue
            task = progress.add_task(candidate.target[:40], total=len(clauses), clause="")

            def advance(result: Result, task: object = task) -> None:
                progress.update(task, advance=1, clause=result.clause)  # type: ignore[arg-type]

            reports.append(candidate.session(run).report(clauses, advance))
    if not options.targets and found[0].target.startswith("reference_impl"):
        console.print("No target was given: these are the reference implementations.")
    write(reports, console)
    if run.seed:
        console.print(f"seed: {run.seed}")
    save(reports, run)
    return exit_status(reports, partial=options.clause is not None)


def exit_status(reports: Sequence[Report], *, partial: bool = False) -> int:
    """0 if all conform (or, of a run of chosen clauses, if none of them fails)."""
    if partial:
        return int(any(report.broken or report.unusable for report in reports))
    return int(not reports or not all(report.conforms for report in reports))


def save(reports: Sequence[Report], options: Options) -> None:
    """Write the result file and the programs that were asked for."""
    if options.json is not None:
        text = json.dumps(reports_to_json(reports), indent=2) + "\n"
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text, encoding="utf-8")
    if options.repro is not None:
        options.repro.mkdir(parents=True, exist_ok=True)
        for report in reports:
            for result in report.results:
                if result.program:
                    name = "".join(c if c.isalnum() else "_" for c in report.target).strip("_")
                    path = options.repro / f"{result.clause}_{name}.py"
                    path.write_text(result.program, encoding="utf-8")


def _known(name: str) -> str:
    """The id of a clause, written in any case."""
    if name.upper() not in REGISTRY:
        known = [each for each in REGISTRY if each.startswith(name.upper().partition("-")[0])]
        raise TargetError(
            f"there is no clause {name!r}"
            + (f"; there are {', '.join(known)}." if known else "; `kvproto list` shows all.")
        )
    return name.upper()


def _explain(options: argparse.Namespace) -> int:
    if ":" in options.clause:
        return _explain_consumer(options.clause)
    wanted = _known(options.clause)
    clause = REGISTRY[wanted]
    contract = REGISTRY.contract_of(wanted)
    console = Console(highlight=False)
    console.print(f"{clause.id}  {clause.level}  contract {contract.name}, since {clause.since}")
    console.print(f"\n{clause.sentence}\n\nWhy: {clause.why}")
    if clause.relied_on_by:
        console.print("\nRelied on by:")
        for consumer in clause.relied_on_by:
            console.print(f"  {consumer}", markup=False)
    if clause.faults:
        console.print("\nBroken in public by:")
        _links(console, clause.faults)
    consumers = [name for name, each in CONSUMERS.items() if wanted in each.relied_on()]
    if consumers:
        console.print("\nProfiles that need it:")
        for name in consumers:
            console.print(f"  {name}", markup=False)
    entry = CHECKS.get(wanted)
    console.print(f"\nTest: {entry.name if entry else 'none yet'}")
    if entry and entry.needs:
        console.print(f"Builds on: {', '.join(entry.needs)}")
    return 0


def _links(console: Console, issues: Sequence[str]) -> None:
    for issue in issues:
        repository, _, number = issue.partition("#")
        console.print(f"  {issue}  https://github.com/{repository}/issues/{number}")


def _explain_consumer(name: str) -> int:
    """What a consumer needs of a cache, and why."""
    consumer = CONSUMERS.get(name.lower())
    if consumer is None:
        raise TargetError(f"there is no profile {name!r}; there are {', '.join(CONSUMERS)}.")
    console = Console(highlight=False)

    def show(text: str, indent: str = "") -> None:
        lines = textwrap.wrap(text, 90, initial_indent=indent, subsequent_indent=f"{indent}  ")
        console.print("\n".join(lines), markup=False, soft_wrap=True)

    console.print(f"{consumer.name}\n", markup=False)
    show(consumer.about)
    show(f"\nFor layers of the kind {' or '.join(consumer.kinds)}.")
    if consumer.members:
        console.print("\nCalls:")
    for member in consumer.members:
        effect = "silently: " if member.degraded else ""
        of = f" (of {' and '.join(member.kinds)} caches)" if member.kinds else ""
        show(f"{member.name}{of}, {member.function}; without it {effect}{member.absent}", "  ")
    console.print("\nRelies on:")
    faults: dict[str, None] = dict.fromkeys(consumer.issues)
    for need in consumer.needs:
        known = [REGISTRY[clause] for clause in need.clauses if clause in REGISTRY]
        if not known:
            continue
        without = {
            Answer.NO: "does not work without",
            Answer.NOT_JUDGED: f"not judged without: {need.unsure}",
            Answer.DEGRADED: f"degraded without: {need.lost}",
        }[need.answer]
        show(f"{need.function}: {need.why} ({without})", "  ")
        for clause in known:
            show(f"{clause.id}  {clause.sentence}", "    ")
            faults.update(dict.fromkeys(clause.faults))
    if faults:
        console.print("\nBroken in public by:")
        _links(console, list(faults))
    return 0


def _list(options: argparse.Namespace) -> int:
    rows = [
        {
            "clause": clause.id,
            "level": str(clause.level),
            "contract": REGISTRY.contract_of(clause.id).name,
            "test": CHECKS[clause.id].name if clause.id in CHECKS else None,
            "faults": list(clause.faults),
            "text": clause.sentence,
        }
        for clause in REGISTRY.values()
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        test = str(row["test"] or "none yet").removeprefix("conformance.checks.")
        print(f"{row['clause']:<9}{row['level']:<8}{row['contract']:<11}{test}")
        if row["faults"]:
            print(f"{'':<17}seen in {', '.join(row['faults'])}")
    without = [row["clause"] for row in rows if row["test"] is None]
    print(f"{len(rows)} clauses, {len(rows) - len(without)} with a test")
    return 0
