"""The suite finds each fault of the gallery, and names the clause that it breaks.

`python -m tests.faults` holds each against every other MUST, too; here a part of them is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import conformance
from conformance.engine import CHECKS
from kvproto.clause import REGISTRY
from tests.faults import FAULTS, Fault
from tests.faults.bases import SOUND, EvictingKVCache, RowOffsets
from tests.faults.verdicts import CORE, ROOT, check, compare, other_musts

UNTESTED = {"REST-7"}
"""Clauses whose checks wait for a contract that is not written yet."""


COMPARED = FAULTS[::12]
"""Faults that are held against every other MUST."""

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
    "HidesTheQueryItself": r"\[\]",
    "HandleConverts": "taken for rows",
    "KeepsALazyArray": "no Stream",
    "LeavesOutDataFreeLayers": "KVCache",
    "ReadsTheWindowOnly": r"\(1, 3, 8, 8\)",
}
"""Faults whose program is run, and what the exception says."""


def named(faults: list[Fault]) -> list[object]:
    return [pytest.param(fault, id=fault.id) for fault in faults]


@pytest.mark.parametrize("fault", named(FAULTS))
def test_fault_is_found_and_named(fault: Fault) -> None:
    assert not compare(fault, *(other_musts(fault) if fault in COMPARED else ()))


def test_every_check_has_a_fault() -> None:
    assert {fault.clause for fault in FAULTS} == {*CHECKS} - UNTESTED


def test_names_tell_faults_apart() -> None:
    names = [fault.cls.__name__ for fault in FAULTS]
    assert sorted(names) == sorted(set(names))
    assert {*SAMPLE} <= {*names}
    assert all(fault.cls.__doc__ for fault in FAULTS)


@pytest.mark.parametrize("base", SOUND)
def test_bases_break_no_must(base: type) -> None:
    claims = {RowOffsets: {"batch_sizes": [2]}, EvictingKVCache: {"visibility": "lossy"}}
    core = [name for name in REGISTRY if REGISTRY.contract_of(name).name in CORE]
    report = conformance.check(base, claims=claims.get(base), effort="quick", clauses=core)
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
