"""Hostile caches are named, the run finishes, and the verdicts on other caches stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance import TargetError, Verdict, check, limits
from tests import hostile
from tests.test_plugin import run as command

ROOT = Path(__file__).parents[1]

FEW = (
    "POS-2",
    "MASK-1",
    "MASK-2",
    "UPD-1",
    "UPD-2",
    "UPD-3",
    "STATE-1",
    "REST-1",
    "BATCH-1",
    "REF-1",
    "READ-1",
)
"""Clauses of several contracts; the checks share the code that meets the cache."""


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1.0)
    monkeypatch.setattr(limits, "MEMORY", 1 << 29)


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (hostile.Hangs, "does not return within 1 s"),
        (hostile.HangsLater, "does not return within 1 s"),
        (hostile.HangsAndHolds, "does not return within 1 s"),
        (hostile.Devours, "takes more than 0.5 GiB of memory"),
    ],
)
def test_a_cache_that_runs_away_is_tried_once(short, monkeypatch, cls, says):
    if cls is hostile.Devours:
        monkeypatch.setattr(limits, "SECONDS", 60.0)  # a busy machine is slow to give memory
    report = check(cls, effort="quick")
    assert report.complete
    (ran,) = [result for result in report.results if result.fatal]
    assert says in ran.message
    assert "update_and_fetch" in ran.message
    assert "update_and_fetch" in ran.program
    assert ran in report.broken
    assert not report.conforms
    assert not [result for result in report.results if result.verdict is Verdict.ERROR]
    later = report.results[report.results.index(ran) + 1 :]
    assert all(r.verdict in (Verdict.BLOCKED, Verdict.SKIP, Verdict.NOT_RUN) for r in later)


def test_an_expected_failure_does_not_excuse_a_hang(short):
    report = check(hostile.Hangs, effort="quick", expected_failures={"POS-2": "known"})
    assert [result for result in report.broken if result.fatal]


@pytest.mark.parametrize(
    ("cls", "clause"),
    [
        (hostile.ReturnsNumpy, "UPD-1"),
        (hostile.ReturnsLists, "UPD-1"),
        (hostile.ReturnsGenerator, "UPD-1"),
        (hostile.MasksAreLists, "MASK-8"),
        (hostile.HasEverything, None),
        (hostile.Slotted, "UPD-2"),
        (hostile.RaisesBase, "UPD-1"),
        (hostile.RaisesInterrupt, "MASK-1"),
        (hostile.EveryThirdDiffers, "POS-2"),
    ],
)
def test_what_a_cache_does_is_its_own_fault(cls, clause):
    clauses = FEW if clause is None else (*FEW, clause)
    report = check(cls, effort="quick", clauses=dict.fromkeys(clauses))
    errors = [result for result in report.results if result.verdict is Verdict.ERROR]
    assert not errors, errors[0].message
    assert report.broken
    if clause is not None:
        assert report[clause].verdict is Verdict.FAIL, report[clause]


def test_what_cannot_even_be_read_is_named(short):
    with pytest.raises(TargetError, match="RaisesExit: reading its members raises SystemExit"):
        check(hostile.RaisesExit)
    with pytest.raises(TargetError, match="the factory does not return within 1 s"):
        check(hostile.HangsWhenMade)


@pytest.mark.parametrize("cls", [hostile.Single, hostile.Proxy])
def test_a_proxy_is_judged_by_what_it_passes_on(cls):
    report = check(cls, effort="quick", clauses=FEW)
    assert not report.broken, str(report)


def run(directory, *arguments):
    module = "kvproto" if arguments[0] == "check" else "pytest"
    return command(directory, *arguments, module=module, timeout=120, PYTHONPATH=str(ROOT))


UNUSABLE = "tests.hostile:RaisesExit"
SUBJECTS = (
    UNUSABLE,
    "tests.hostile:Hangs",
    "tests.hostile:RaisesInterrupt",
    "tests.hostile:Single",
)


def judged(path):
    """The verdicts on each cache; of one that cannot be tested, why."""
    data = json.loads(path.read_text())
    found = {
        subject["target"]: {r["clause"]: r["verdict"] for r in subject["results"]}
        or subject["unusable"]
        for subject in data["subjects"]
    }
    assert not data["complete"]
    assert "reading its members raises SystemExit" in found.pop(UNUSABLE)
    return found


def test_the_command_goes_on_to_the_next_cache(tmp_path):
    ran = run(
        tmp_path, "check", *SUBJECTS, "--effort", "quick", "--timeout", "5", "--json", "r.json"
    )
    assert ran.returncode == 1, ran.stderr
    found = judged(tmp_path / "r.json")
    assert (UNUSABLE, *found) == SUBJECTS
    assert {"pass", "skip"} >= {*found[SUBJECTS[3]].values()}
    assert "does not return within 5 s" in ran.stdout
    assert "CANNOT BE TESTED" in ran.stdout


def test_pytest_goes_on_to_the_next_cache(tmp_path):
    caches = [part for subject in SUBJECTS for part in ("--cache", subject)]
    ran = run(
        tmp_path, "--pyargs", "conformance", *caches, "--conformance-effort", "quick",
        "--conformance-timeout", "5", "--conformance-json", "r.json", "-p", "no:cacheprovider",
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    found = judged(tmp_path / "r.json")
    assert (UNUSABLE, *found) == SUBJECTS
    assert {"pass", "skip"} >= {*found[SUBJECTS[3]].values()}
    assert "CANNOT BE TESTED" in ran.stdout


def test_workers_agree_on_a_cache_that_cannot_be_imported(tmp_path):
    (tmp_path / "ends.py").write_text("raise SystemExit(0)")
    caches = ("ends.py:Cache", "reference_impl:OffsetCache(5)")
    chosen = [part for cache in caches for part in ("--cache", cache)]
    ran = run(
        tmp_path, "--pyargs", "conformance", *chosen, "--conformance-effort", "quick", "-n", "2",
        "-p", "no:cacheprovider",
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert "importing 'ends.py' raises SystemExit" in ran.stdout
    assert "1 of 2 caches conform" in ran.stdout
    ran = run(tmp_path, "check", *caches, "--clause", "POS-1")
    assert ran.returncode == 1, ran.stderr
    assert "CANNOT BE TESTED" in ran.stdout


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_a_limit_is_above_zero(tmp_path, seconds):
    ran = run(tmp_path, "check", "tests.hostile:Single", "--timeout", seconds)
    assert ran.returncode == 2
    assert "seconds above 0" in ran.stderr
