"""A quick subset of ``python -m tests.soak``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import soak

QUICK = [each for each in soak.SUBJECTS if each.name in ("OffsetCache(5)", "RecurrentCache(2)")]


def test_known_good_caches_raise_no_alarm_and_are_not_judged_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(QUICK) == 2
    found = soak.run(QUICK, range(2), "quick", tmp_path)
    assert [*found.values()] == [{0: soak.Outcome((), ()), 1: soak.Outcome((), ())}] * 2
    monkeypatch.setattr(soak, "judge", lambda *again: pytest.fail("judged twice"))
    assert soak.run(QUICK, range(2), "quick", tmp_path) == found
    monkeypatch.setattr(soak, "code", lambda: "other code")
    with pytest.raises(pytest.fail.Exception, match="judged twice"):
        soak.run(QUICK, range(2), "quick", tmp_path)


def result(
    clause: str, verdict: str, level: str = "MUST", fatal: bool = False
) -> dict[str, object]:
    return {
        "clause": clause, "verdict": verdict, "level": level, "fatal": fatal, "message": "says so",
    }  # fmt: skip


def test_what_counts_as_an_alarm() -> None:
    subject = soak.Subject("x", "x:X", frozenset({"UPD-1", "UPD-2", "UPD-3"}))
    results = [
        result("UPD-1", "fail"),
        result("UPD-2", "blocked"),
        result("UPD-3", "pass"),
        result("POS-1", "fail"),
        result("POS-2", "error"),
        result("UPD-8", "fail", "SHOULD"),
        result("UPD-9", "fail", "SHOULD", fatal=True),
    ]
    found = soak.outcome(subject, results)
    assert [alarm.partition(":")[0] for alarm in found.alarms] == ["POS-1", "POS-2", "UPD-9"]
    assert found.missed == ("UPD-3",)


def test_another_fault_of_a_fixed_release_is_no_alarm() -> None:
    for says, alarms in (("says so", 1), ("something else", 0)):
        subject = soak.Subject("x", "x:X", says=says)
        assert len(soak.outcome(subject, [result("UPD-1", "fail")]).alarms) == alarms
