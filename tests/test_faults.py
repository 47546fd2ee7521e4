"""The suite finds each fault of the gallery, and names the clause that it breaks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import conformance
from conformance import Report, Subject, Verdict
from conformance.engine import CHECKS
from conformance.subject import subjects_from_target
from kvproto.clause import REGISTRY, Level
from tests.faults import FAULTS, Fault
from tests.faults.bases import SOUND, RowOffsets

ROOT = Path(__file__).parents[1]

CORE = ("position", "mask", "update", "state", "data-free", "refuse", "read-back")
"""What every fault is compared with: no other MUST of these may fail."""

SINGLE = (*CORE, "restore", "copying", "trim", "measure", "window")
"""What the faults of the other contracts are compared with."""

UNTESTED = {"REST-7"}
"""Clauses whose checks wait for a contract that is not written yet."""


def musts(fault: Fault) -> list[str]:
    contract = REGISTRY.contract_of(fault.clause).name
    compared = CORE if contract in CORE else ("prompt",) if contract == "prompt" else SINGLE
    return [
        name
        for name in REGISTRY
        if REGISTRY[name].level is Level.MUST and REGISTRY.contract_of(name).name in compared
    ]


SAMPLE = {
    "ReturnsValuesFirst": "",
    "SwapsItsHeads": "",
    "PadsItsValues": "",
    "MixesItsRows": "",
    "FirstRowForAll": "",
    "ForgetsAt300": "",
    "ReturnsNumpy": "",
    "ArrayBecomesIntByTrim": "",
    "ChangesItsDtype": "",
    "TrimsBelowZero": "",
    "DropsWhenMasked": "",
    "ReadingTurnsTrimmable": "",
    "CountsItsReaders": "",
    "MovesWhenRead": "",
    "ReadingAdvances": "",
    "ReservesTooMuch": "",
    "RaisesOffsetInPlace": r"array\(\[0, 0\].*array\(\[1, 1\]",
    "CountsRetainedRows": "8",
    "IgnoresWindowForOneToken": r"\[0, 1\]",
    "SinksScrollAway": r"\[1, 3, 4, 5, 6, 7, 8\]",
    "OneRowTooMany": r"\[0, -1\]",
    "KeysInRingOrder": r"\[0, 1, 2, 3, 4, 5, 6, 7, 8\]",
    "FalsyByLength": "would drop its mask",
    "MovesBeforeRaising": "1",
    "ClearsBeforeRefusing": "0",
    "HandleConverts": "taken for rows",
    "KeepsALazyArray": "no Stream",
    "LeavesOutDataFreeLayers": "KVCache",
    "ReadsTheWindowOnly": r"\(1, 3, 8, 8\)",
}
"""Faults whose program is run, and what the exception says."""


def subject_of(fault: Fault) -> Subject:
    (subject,) = subjects_from_target(fault.target, directory=ROOT, claims=fault.claims)
    return subject


def check(fault: Fault, *clauses: str) -> Report:
    return conformance.check(subject_of(fault), effort=fault.effort, clauses=clauses)


def named(faults: list[Fault]) -> list[object]:
    return [pytest.param(fault, id=fault.id) for fault in faults]


@pytest.mark.parametrize("fault", named(FAULTS))
def test_fault_is_found_and_named(fault: Fault) -> None:
    others = (name for name in musts(fault) if name != fault.clause)
    report = check(fault, fault.clause, *others)
    assert report[fault.clause].verdict is Verdict.FAIL, report[fault.clause]
    broken = {
        result.clause: result.message
        for result in report.results
        if result.verdict in (Verdict.FAIL, Verdict.ERROR)
    }
    assert broken.keys() <= {fault.clause, *fault.also}, broken
    # A clause that is listed for no reason would hide a false alarm.
    listed = [result for result in report.results if result.clause in fault.also]
    assert all(result.verdict in (Verdict.FAIL, Verdict.BLOCKED) for result in listed), listed


def test_every_check_has_a_fault() -> None:
    assert {fault.clause for fault in FAULTS} == {*CHECKS} - UNTESTED


def test_names_tell_faults_apart() -> None:
    names = [fault.cls.__name__ for fault in FAULTS]
    assert sorted(names) == sorted(set(names))
    assert {*SAMPLE} <= {*names}
    assert all(fault.cls.__doc__ for fault in FAULTS)


@pytest.mark.parametrize("base", SOUND)
def test_bases_break_no_must(base: type) -> None:
    claims = {"batch_sizes": [2]} if base is RowOffsets else {}
    core = [name for name in REGISTRY if REGISTRY.contract_of(name).name in CORE]
    report = conformance.check(base, claims=claims, effort="quick", clauses=core)
    assert not report.broken


def run_program(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    path.write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "fault", named([fault for fault in FAULTS if fault.cls.__name__ in SAMPLE])
)
def test_program_shows_the_fault(fault: Fault, tmp_path: Path) -> None:
    program = check(fault, fault.clause)[fault.clause].program
    assert not re.search(r"^\s*(import|from)\s+(kvproto|conformance)", program, re.MULTILINE)
    done = run_program(program, tmp_path / "program.py")
    assert done.returncode == 1, program
    assert "Traceback" in done.stderr
    error = done.stderr.strip().splitlines()[-1]
    assert not error.startswith(("NameError", "SyntaxError", "ModuleNotFound", "ImportError"))
    assert re.search(SAMPLE.get(fault.cls.__name__, ""), error), done.stderr
