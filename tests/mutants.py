"""Mutation testing: does anything notice when the code is changed?

::

    python -m tests.mutants [MODULE ...] [--effort quick|default] [--workers N] [--sample N]

The reference caches are judged by the conformance suite alone, as ``pytest --pyargs conformance
--strict`` does, not by tests/. The oracle and what reads masks, which judge them, are judged by
tests/. A mutant that nothing notices is a survivor: a check is not sharp enough, or the mutant says
the same in other words. ``equivalents.py`` lists those with reasons.

Why a tool of our own: mutmut forks after MLX has run, and every child hangs; mutatest is broken on
Python 3.11; cosmic-ray and poodle work, but start a process and the whole suite for each mutant,
which is minutes where this takes a second. Here a worker has everything imported, takes a mutant in
place of its module, and runs only the clauses that execute the changed statement, those first that
found most so far for their time. Traces end at the first failure and are not shrunk.

Results are kept in a file by what they depend on: a run that was ended goes on, and a mutant that
was killed is first shown to what killed it. A kill counts whatever the effort, for a greater effort
tries more. A mutant that is not killed within a budget of time survives, so figures err low.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import multiprocessing
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from tests.equivalents import EQUIVALENTS, Equivalent
from tests.mutation import Mutant, mutants

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".pytest_cache" / "mutants.json"
SECONDS = 10.0
"""How long an example may take on a mutant; then it hangs, and is killed."""
BUDGET = 60.0
"""How long clauses are tried on a mutant: one that needs longer counts as a survivor."""
PATIENCE = 300.0
"""How long a mutant may take in all, for one that hangs outside Python."""

REFERENCE = tuple(
    f"reference_impl.{path.stem}"
    for path in sorted((ROOT / "reference_impl").glob("*.py"))
    if path.stem != "__init__"
)
JUDGES = (
    "kvproto.visibility",
    "conformance.log",
    "conformance.tags",
    "conformance.helpers",
    "conformance.attention",
    "conformance.trace:densify",
)
"""What says which answers are right, by module or module:function."""
JUDGES_OF_JUDGES = ("tests/test_visibility.py", "tests/test_oracle.py")

Pair = tuple[str, str]
"""A subject and a clause."""


def source_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


def path_of(module: str) -> Path:
    return ROOT / (module.partition(":")[0].replace(".", "/") + ".py")


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def everything(*folders: str) -> str:
    """A digest of all sources below some folders."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return digest(*(path.read_text(encoding="utf-8") for path in paths))


# -- in a worker ----------------------------------------------------------------------------------


class Mutated(importlib.abc.MetaPathFinder):
    """Finds one module, with another text than the file has."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.source = source

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        file, source = str(path_of(name)), self.source

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return compile(source, file, "exec")

        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))


@contextlib.contextmanager
def in_place(module: str, source: str, *packages: str) -> Iterator[None]:
    """The mutated module in place of the module; these packages are imported anew."""
    finder = Mutated(module.partition(":")[0], source)
    sys.meta_path.insert(0, finder)
    forget(*packages)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        forget(*packages)


def forget(*packages: str) -> None:
    for name in list(sys.modules):
        if name.startswith(packages):
            del sys.modules[name]


def prepare() -> None:
    from conformance import engine, limits

    limits.SECONDS = SECONDS
    limits.MEMORY = 1 << 30
    engine.SHRINK_SECONDS = 0.0


def judged_by_the_suite(
    module: str, source: str, pairs: Sequence[Pair], effort: str, budget: float
) -> tuple[Pair | None, str]:
    """The first clause that notices, and what it says; None if none does in ``budget`` seconds."""
    from conformance.engine import BLOCKING, Session
    from conformance.subject import subjects_from_target
    from conformance.target import TargetError

    prepare()
    began = time.monotonic()
    with in_place(module, source, "reference_impl"):
        sessions: dict[str, Session] = {}
        for number, (target, clause) in enumerate(pairs):
            if time.monotonic() - began > budget:
                return None, f"{number} of {len(pairs)} clauses that execute it say nothing"
            if target not in sessions:
                try:
                    (subject,) = subjects_from_target(target)
                    sessions[target] = Session(subject, effort=effort, strict=True)
                except TargetError as error:
                    return (target, clause), f"cannot be used: {error}"
            result = sessions[target].result(clause)
            if result.verdict in BLOCKING:
                return (target, clause), result.message.partition("\n")[0]
    return None, f"all {len(pairs)} clauses that execute it say nothing"


def judged_by_tests(module: str, source: str) -> tuple[Pair | None, str]:
    """As :func:`judged_by_the_suite`, by the tests of what judges."""
    import pytest

    class First:
        said = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.said:
                self.said = report.nodeid

    first = First()
    own = ("kvproto", "conformance", "reference_impl", "tests.test_", "test_", "tests.conftest")
    with (
        in_place(module, source, *own),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-o", "addopts="]
        options += ["-o", "filterwarnings=ignore"]
        paths = [str(ROOT / name) for name in JUDGES_OF_JUDGES]
        status = pytest.main([*options, "--import-mode=importlib", *paths], plugins=[first])
    killer = ("tests", first.said) if status else None
    return killer, f"pytest ends with {int(status)}"


def covered(target: str) -> dict[str, Any]:
    """Which lines of the reference caches each clause executes on a subject, and its seconds."""
    from conformance.engine import Session
    from conformance.subject import Subject, subjects_from_target
    from conformance.verdict import Result, Verdict

    folder = str(ROOT / "reference_impl") + os.sep
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(folder):
            return None
        name = f"reference_impl.{Path(file).stem}"

        def local(frame: FrameType, event: str, argument: object) -> Any:
            lines.add((name, frame.f_lineno))
            return local

        return local(frame, event, argument)

    clauses: dict[str, Any] = {}

    class Recording(Session):
        def _judge(self, clause: str) -> Result:
            nonlocal lines
            outer, lines = lines, set()
            began = time.perf_counter()
            result = super()._judge(clause)
            if result.verdict is Verdict.PASS:
                seconds = time.perf_counter() - began
                clauses[clause] = {"seconds": seconds, "lines": by_module(lines)}
            elif result.verdict is not Verdict.SKIP:
                raise RuntimeError(f"{target} is not sound: {result}")
            lines = outer
            return result

    forget("reference_impl")
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        importlib.import_module("reference_impl")
        imported, lines = lines, set()
        subject: Subject
        (subject,) = subjects_from_target(target)
        session = Recording(subject, effort="quick", strict=True)
        constructed, lines = lines, set()
        session.report()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return {
        "imported": by_module(imported),
        "constructed": by_module(constructed),
        "clauses": clauses,
    }


def by_module(lines: set[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for module, line in sorted(lines):
        found.setdefault(module, []).append(line)
    return found


def work(connection: Any) -> None:
    """Answer (function name, arguments) until there are none."""
    sys.stdin = open(os.devnull)  # noqa: SIM115
    # The project's own code is imported before the first mutant, so that each costs only itself.
    importlib.import_module("conformance.checks")
    while (asked := connection.recv()) is not None:
        name, arguments = asked
        try:
            connection.send(("answer", globals()[name](*arguments)))
        except Exception as error:
            connection.send(("error", repr(error)))


# -- in the command -------------------------------------------------------------------------------


class Hung(Exception):
    """A worker did not answer in time, or died."""


class Worker:
    """A process that judges mutants; a new one where one hangs. MLX does not survive a fork."""

    def __init__(self) -> None:
        self._process: Any = None

    def ask(self, name: str, *arguments: object, patience: float = PATIENCE) -> Any:
        """Call one of the functions above.

        Raises:
            Hung: no answer within ``patience`` seconds.
            RuntimeError: with what the function raised.
        """
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=work, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._connection.send((name, arguments))
            if not self._connection.poll(patience):
                raise Hung(f"no answer within {patience:g} s")
            kind, answer = self._connection.recv()
        except (EOFError, OSError):
            self.end()
            raise Hung("the process died") from None
        except BaseException:
            self.end()
            raise
        if kind == "error":
            raise RuntimeError(answer)
        return answer

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


@dataclass
class Case:
    """A mutant of a module, and what became of it."""

    module: str
    mutant: Mutant
    source: str
    equivalent: Equivalent | None = None
    killer: Pair | None = None
    said: str = ""

    @property
    def key(self) -> str:
        return digest(self.module, self.mutant.of(self.source))

    @property
    def place(self) -> str:
        return f"{path_of(self.module).relative_to(ROOT)}:{self.mutant.line}"

    @property
    def lines(self) -> tuple[str, str]:
        return self.mutant.lines(self.source)

    @property
    def is_reference(self) -> bool:
        return self.module in REFERENCE


class Results:
    """What is known of mutants, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = {"covered": {}, "mutants": {}}
        if path.is_file():
            self.data = json.loads(path.read_text(encoding="utf-8"))

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(self.data), encoding="utf-8")
        part.replace(self.path)


def cases_of(module: str) -> list[Case]:
    source = source_of(module)
    found = [Case(module, m, source) for m in mutants(source, module.partition(":")[2] or None)]
    for case in found:
        for entry in EQUIVALENTS:
            if entry.is_of(module, case.mutant.function, *case.lines):
                case.equivalent = entry
    return found


def pairs_for(case: Case, coverage: dict[str, Any], kills: Counter[Pair]) -> list[Pair]:
    """The subjects and clauses that execute what the mutant changes, the most telling first."""
    module, (first, last) = case.module, case.mutant.reach
    reach = range(first, last + 1)

    def touches(lines: dict[str, list[int]]) -> bool:
        return any(line in reach for line in lines.get(module, ()))

    chosen: dict[Pair, float] = {}
    for target, found in coverage.items():
        clauses = found["clauses"]
        names = [name for name, one in clauses.items() if touches(one["lines"])]
        if not names and touches(found["constructed"]):
            names = list(clauses)
        if not names and touches(found["imported"]):
            names = [name for name, one in clauses.items() if module in one["lines"]]
        for name in names:
            chosen[target, name] = clauses[name]["seconds"]
    return sorted(chosen, key=lambda pair: -(1 + 4 * kills[pair]) / (0.02 + chosen[pair]))


class Campaign:
    """Judges cases by one or more workers, and remembers."""

    def __init__(
        self, results: Results, effort: str, budget: float, workers: int, progress: Progress
    ) -> None:
        self.results = results
        self.effort = effort
        self.budget = budget
        self.progress = progress
        self.workers = [Worker() for _ in range(workers)]
        self.lock = threading.Lock()
        self.kills: dict[str, Counter[Pair]] = {}
        self.suite = everything("kvproto", "conformance", "reference_impl")
        self.tests = digest(self.suite, *(source_of_path(name) for name in JUDGES_OF_JUDGES))

    def coverage(self) -> dict[str, Any]:
        """Coverage of every default subject, from the file where nothing changed since."""
        from conformance.config import REFERENCE as TARGETS

        key = self.suite
        known = self.results.data["covered"]
        missing = [target for target in TARGETS if known.get(target, {}).get("key") != key]

        def record(worker: Worker, target: str) -> None:
            found = worker.ask("covered", target, patience=1200)
            with self.lock:
                known[target] = {"key": key, **found}
                self.results.save()

        self._share(missing, record, "what each clause executes")
        return {target: known[target] for target in TARGETS}

    def judge(self, cases: Sequence[Case]) -> None:
        """Find out about each case; what is known already is taken from the file."""
        known = self.results.data["mutants"]
        open_cases = []
        for case in cases:
            entry = known.get(case.key)
            if entry and entry["killer"]:
                self.kills.setdefault(case.module, Counter())[tuple(entry["killer"])] += 1
            if entry and entry["on"] == self._depends(case):
                if entry["killer"]:
                    case.killer, case.said = tuple(entry["killer"]), entry["said"]
                    continue
                effort, budget = entry["tried"]
                if not case.is_reference or (effort == self.effort and budget >= self.budget):
                    case.said = entry["said"]
                    continue
            open_cases.append(case)
        coverage = self.coverage() if any(case.is_reference for case in open_cases) else {}
        saved = time.monotonic()

        def run(worker: Worker, case: Case) -> None:
            nonlocal saved
            self._judge(worker, case, coverage)
            with self.lock:
                known[case.key] = {
                    "on": self._depends(case),
                    "tried": [self.effort, self.budget],
                    "killer": case.killer,
                    "said": case.said[:200],
                }
                if time.monotonic() - saved > 5:
                    self.results.save()
                    saved = time.monotonic()

        try:
            self._share(open_cases, run, "mutants")
        finally:
            self.results.save()

    def _depends(self, case: Case) -> str:
        return self.suite if case.is_reference else self.tests

    def _judge(self, worker: Worker, case: Case, coverage: dict[str, Any]) -> None:
        source = case.mutant.of(case.source)
        try:
            if case.is_reference:
                kills = self.kills.setdefault(case.module, Counter())
                pairs = pairs_for(case, coverage, kills)
                before = self.results.data["mutants"].get(case.key)
                if before and before["killer"] and tuple(before["killer"]) in pairs:
                    pairs.insert(0, tuple(before["killer"]))
                how = (pairs, self.effort, self.budget)
                found = worker.ask("judged_by_the_suite", case.module, source, *how)
            else:
                found = worker.ask("judged_by_tests", case.module, source)
        except Hung as error:
            found = ("", ""), str(error)
        killer, case.said = found
        if killer is not None:
            case.killer = tuple(killer)
            with self.lock:
                self.kills.setdefault(case.module, Counter())[case.killer] += 1

    def _share(self, items: Sequence[Any], run: Any, name: str) -> None:
        """Run over items, each worker one at a time."""
        left = iter(items)
        task = self.progress.add_task(name, total=len(items))
        errors: list[BaseException] = []

        def loop(worker: Worker) -> None:
            while not errors:
                with self.lock:
                    item = next(left, None)
                if item is None:
                    return
                try:
                    run(worker, item)
                except BaseException as error:
                    errors.append(error)
                self.progress.advance(task)

        threads = [threading.Thread(target=loop, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            errors.append(KeyboardInterrupt())
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def close(self) -> None:
        for worker in self.workers:
            worker.end()


def source_of_path(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Score:
    """The mutants of a module."""

    module: str
    cases: Sequence[Case]

    @property
    def killed(self) -> int:
        return sum(case.killer is not None for case in self.cases)

    @property
    def equivalent(self) -> int:
        return sum(case.killer is None and case.equivalent is not None for case in self.cases)

    @property
    def survivors(self) -> list[Case]:
        return [case for case in self.cases if case.killer is None and case.equivalent is None]

    @property
    def percent(self) -> float:
        """Killed, of those that can be."""
        possible = len(self.cases) - self.equivalent
        return 100 * self.killed / possible if possible else 100.0


def judge(
    modules: Sequence[str],
    *,
    effort: str = "default",
    budget: float = BUDGET,
    workers: int = 1,
    sample: int | None = None,
    cache: Path = CACHE,
    progress: Progress | None = None,
) -> list[Score]:
    """The score of each module.

    Args:
        budget: seconds after which a mutant survives.
        sample: only so many mutants in all, chosen by chance, always the same ones.
        cache: the file in which results are kept.
    """
    cases = [case for module in modules for case in cases_of(module)]
    # A run that is ended early, or a sample, has seen all modules.
    random.Random(0).shuffle(cases)
    cases = cases[:sample]
    campaign = Campaign(Results(cache), effort, budget, workers, progress or Progress(disable=True))
    try:
        campaign.judge(cases)
    finally:
        campaign.close()
    cases.sort(key=lambda case: case.mutant.start)
    return [Score(m, [case for case in cases if case.module == m]) for m in modules]


def stale(scores: Sequence[Score]) -> list[str]:
    """What is wrong with the table of equivalents, for modules whose mutants were all judged."""
    wrong = []
    for entry in EQUIVALENTS:
        score = next((one for one in scores if one.module == entry.module), None)
        if score is None:
            continue
        named = [case for case in score.cases if case.equivalent is entry]
        killed = [case for case in named if case.killer is not None]
        what = f"{entry.module} {entry.function}: {entry.becomes}"
        if not named:
            wrong.append(f"no such mutant: {what}")
        wrong += [f"not equivalent, {case.killer} kills it: {what}" for case in killed]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every = [*REFERENCE, *JUDGES]
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(every))
    parser.add_argument("--effort", choices=["quick", "default"], default="default")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, by chance")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FILE")
    options = parser.parse_args()
    unknown = set(options.modules) - set(every)
    if unknown:
        parser.error(f"{sorted(unknown)} is none of {', '.join(every)}")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        scores = judge(
            options.modules or every,
            effort=options.effort,
            budget=options.budget,
            workers=options.workers,
            sample=options.sample,
            cache=options.cache,
            progress=progress,
        )
    console = Console(highlight=False, soft_wrap=True)
    for score in scores:
        for case in score.survivors:
            was, becomes = case.lines
            console.print(f"{case.place} {case.mutant.function} ({case.said})", style="bold")
            console.print(f"  - {escape(was)}\n  + {escape(becomes)}")
    table = Table("module", "mutants", "killed", "equivalent", "survive", "killed of the rest")
    for row in [*scores, Score("all", [case for score in scores for case in score.cases])]:
        counts = (len(row.cases), row.killed, row.equivalent, len(row.survivors))
        table.add_row(row.module, *map(str, counts), f"{row.percent:.1f} %")
    console.print(table)
    wrong = [] if options.sample else stale(scores)
    for line in wrong:
        console.print(f"tests/equivalents.py: {escape(line)}")
    return int(bool(wrong) or any(score.survivors for score in scores))


if __name__ == "__main__":
    sys.exit(main())
