"""What the suite says about a fault of the gallery: its own clause, and every other MUST."""

from __future__ import annotations

from pathlib import Path

import conformance
from conformance import Report, Subject, Verdict
from conformance.subject import subjects_from_target
from kvproto.clause import REGISTRY, Level
from tests.faults.gallery import Fault

ROOT = Path(__file__).parents[2]

CORE = ("position", "mask", "update", "state", "data-free", "refuse", "read-back")
"""What every fault is compared with: no other MUST of these may fail."""

SINGLE = (*CORE, "restore", "copying", "trim", "measure", "window")
"""What the faults of the other contracts are compared with."""


def subject_of(fault: Fault) -> Subject:
    (subject,) = subjects_from_target(fault.target, directory=ROOT, claims=fault.claims)
    return subject


def check(fault: Fault, *clauses: str) -> Report:
    return conformance.check(subject_of(fault), effort=fault.effort, clauses=clauses)


def other_musts(fault: Fault) -> list[str]:
    contract = REGISTRY.contract_of(fault.clause).name
    compared = CORE if contract in CORE else ("prompt",) if contract == "prompt" else SINGLE
    return [
        name
        for name in REGISTRY
        if REGISTRY[name].level is Level.MUST
        and REGISTRY.contract_of(name).name in compared
        and name != fault.clause
    ]


def compare(fault: Fault, *others: str) -> list[str]:
    """What is wrong with the verdicts on a fault; nothing, if the suite names it and only it.

    Args:
        others: the clauses that it must not break, but for those in ``fault.also``.
    """
    report = check(fault, fault.clause, *fault.also, *others)
    found = report[fault.clause]
    wrong = [] if found.verdict is Verdict.FAIL else [f"{fault.clause} is not found: {found}"]
    for result in report.results:
        if result.clause in fault.also:
            # A clause that is listed for no reason would hide a false alarm.
            if result.verdict not in (Verdict.FAIL, Verdict.BLOCKED):
                wrong.append(f"{result.clause} is listed and not broken: {result}")
        elif result.clause != fault.clause and result.verdict in (Verdict.FAIL, Verdict.ERROR):
            wrong.append(f"{result.clause} is not listed and broken: {result}")
    return wrong
