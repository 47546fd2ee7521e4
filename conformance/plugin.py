"""What the pytest plugin does once a run asks for the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import conformance.checks  # noqa: F401 (registers the checks)
from conformance.candidates import Candidate, candidates
from conformance.cli import save
from conformance.config import Options, configured_caches, default_caches
from conformance.engine import Session
from conformance.report.terminal import failure_text, render
from conformance.subject import Named
from conformance.target import TargetError
from conformance.verdict import Report, Result, Verdict
from kvproto.clause import REGISTRY

PROPERTY = "kvproto"
"""The user property by which a worker's result reaches the controller."""

UNUSABLE = "cannot be tested"
"""In place of a clause: the one test of a cache that cannot be tested."""


class Suite:
    """Subjects, sessions and results of one pytest run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        directory = Path(config.invocation_params.dir)
        try:
            self.options = Options.of(
                effort=config.getoption("--conformance-effort"),
                seed=config.getoption("--conformance-seed"),
                strict=_strict(config),
                device=config.getoption("--conformance-device"),
                timeout=config.getoption("--conformance-timeout"),
                json=_path(directory, config.getoption("--conformance-json")),
                repro=_path(directory, config.getoption("--conformance-repro")),
            )
            targets = config.getoption("kv_cache")
            caches = [Named(text, directory) for text in targets]
            self.source = "caches given by --cache"
            if not targets:
                caches = configured_caches(directory)
                self.source = "caches given by [[tool.kvproto.cache]] in pyproject.toml"
            if not caches:
                caches = default_caches()
                self.source = "no --cache was given: these are the reference implementations"
            found = candidates(caches)
        except TargetError as error:
            raise pytest.UsageError(f"kvproto: {error}") from None
        self.names = _unique([candidate.target for candidate in found])
        self.candidates: dict[str, Candidate] = dict(zip(self.names, found, strict=True))
        self._sessions: dict[str, Session] = {}
        self.results: dict[str, dict[str, Result]] = {name: {} for name in self.names}
        self.heads: dict[str, dict[str, Any]] = {}

    def parameters(self) -> list[Any]:
        """Subject and clause of every test, in the order of the spec."""
        shown = _unique([name.rpartition(":")[2] for name in self.names])
        return [
            pytest.param(name, clause, id=f"{short}-{clause}", marks=pytest.mark.clause(clause))
            for name, short in zip(self.names, shown, strict=True)
            for clause in ([UNUSABLE] if self.candidates[name].unusable else REGISTRY)
        ]

    def session(self, name: str) -> Session:
        if name not in self._sessions:
            self._sessions[name] = self.candidates[name].session(self.options)
        return self._sessions[name]

    def run(self, name: str, clause: str, record: Any) -> None:
        """Judge one clause and end the test as its verdict says."""
        candidate = self.candidates[name]
        if candidate.unusable:
            head = candidate.unusable_report(self.options).to_json()
            record(PROPERTY, json.dumps({"subject": name, "head": head}))
            pytest.fail(candidate.unusable, pytrace=False)
        session = self.session(name)
        result = session.result(clause)
        head = session.report_of([]).to_json()
        record(PROPERTY, json.dumps({"subject": name, "head": head, "result": result.to_json()}))
        if result.breaks(strict=self.options.strict):
            pytest.fail(failure_text(session.subject.target, result), pytrace=False)
        elif result.verdict is Verdict.FAIL:
            pytest.xfail(f"SHOULD: {result.message}")
        elif result.verdict is Verdict.EXPECTED_FAILURE:
            pytest.xfail(result.message)
        elif result.verdict in (Verdict.SKIP, Verdict.BLOCKED, Verdict.NOT_RUN):
            pytest.skip(f"{result.verdict}: {result.message}")

    # -- hooks --------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather results on the controller, whichever process found them."""
        if report.when != "call" or hasattr(self.config, "workerinput"):
            return
        for key, value in report.user_properties:
            if key == PROPERTY:
                data = json.loads(str(value))
                self.heads[data["subject"]] = data["head"]
                if "result" in data:
                    result = Result.from_json(data["result"])
                    self.results[data["subject"]][result.clause] = result

    def reports(self) -> list[Report]:
        """A report for each subject that was run."""
        return [
            Report.from_json(self.heads[name], list(self.results[name].values()))
            for name in self.names
            if name in self.heads
        ]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self.config, "workerinput"):
            return
        reports = self.reports()
        save(reports, self.options)
        whole = len(reports) == len(self.names) and all(report.complete for report in reports)
        # A run that left something out is not green, whatever it found.
        if exitstatus == pytest.ExitCode.OK and reports and not whole:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        reports = self.reports()
        if not reports:
            return
        terminalreporter.section("kvproto", sep="=")
        seed = f", seed {self.options.seed}" if self.options.seed else ""
        terminalreporter.write_line(f"{self.source}; effort {self.options.effort}{seed}")
        width = min(terminalreporter._tw.fullwidth, 100)
        for line in render(reports, width=width, failures=False).splitlines():
            terminalreporter.write_line(line)
        for name in [name for name in self.names if name not in self.heads]:
            terminalreporter.write_line(f"INCOMPLETE: {name} was not run")


def _strict(config: pytest.Config) -> bool:
    """Whether SHOULD clauses decide. pytest has a --strict of its own; asked for on the command
    line it means this, too, but not where a project has it in its settings."""
    if config.getoption("--conformance-strict"):
        return True
    return "--strict" in [str(argument) for argument in config.invocation_params.args]


def _path(directory: Path, text: str | None) -> Path | None:
    return directory / text if text else None


def _unique(names: list[str]) -> list[str]:
    """The names, repeated ones numbered."""
    return [
        name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]
