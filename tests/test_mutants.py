"""A quick subset of ``python -m tests.mutants``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.equivalents import EQUIVALENTS
from tests.mutants import Worker, cases_of, pairs_for
from tests.mutation import mutants

SOURCE = '''
LIMIT = 3

def held(rows, start, *, end: int = 4):
    """Not touched."""
    if rows is None or start >= 2:
        raise ValueError(f"{start + 1}")
    rows = rows[1:]
    rows.sort()
    return min(start, end) + len(rows)
'''


def test_mutants_of_a_function() -> None:
    found = mutants(SOURCE)
    assert {mutant.lines(SOURCE)[1] for mutant in found} == {
        "LIMIT = 4",
        "LIMIT = 2",
        "def held(rows, start, *, end: int = 5):",
        "def held(rows, start, *, end: int = 3):",
        "if rows is None and start >= 2:",
        "if start >= 2:",
        "if rows is None:",
        "if not (rows is None or start >= 2):",
        "if rows is not None or start >= 2:",
        "if rows is None or start > 2:",
        "if rows is None or start >= 3:",
        "if rows is None or start >= 1:",
        "pass",
        "rows = rows[2:]",
        "rows = rows[0:]",
        "rows = rows[:]",
        "return None",
        "return min(start, end) - len(rows)",
        "return max(start, end) + len(rows)",
    }
    for mutant in found:
        compile(mutant.of(SOURCE), "mutant", "exec")
    reach = {mutant.reach for mutant in found if mutant.lines(SOURCE)[0].startswith("if rows")}
    assert reach == {(6, 6)}
    assert {mutant.function for mutant in found} == {"", "held"}


@pytest.fixture(scope="module")
def worker():
    process = Worker()
    yield process
    process.end()


FULL, WINDOW = (
    "reference_impl:KVCache()",
    "reference_impl:SlidingWindowKVCache(8)",
)
KNOWN = (
    ("full", "if offset == 0:", "if offset != 0:", FULL, "READ-2"),
    ("full", "self._offset = end", "pass", FULL, "POS-2"),
    ("masks", "visible = keys <= queries", "visible = keys < queries", FULL, "MASK-3"),
    ("arguments", "if value < minimum:", "if value <= minimum:", FULL, "MASK-1"),
    ("window", "return self._offset", "return None", WINDOW, "POS-1"),
)
"""Module, line, mutated line, and what kills it."""


@pytest.mark.parametrize(("name", "was", "becomes", "target", "clause"), KNOWN)
def test_suite_kills(worker, name, was, becomes, target, clause) -> None:
    module = f"reference_impl.{name}"
    case = next(case for case in cases_of(module) if case.lines == (was, becomes))
    pairs = [(target, clause)]
    killer, said = worker.ask(
        "judged_by_the_suite", module, case.mutant.of(case.source), pairs, "quick", 30.0
    )
    assert killer == (target, clause), said
    killer, said = worker.ask("judged_by_the_suite", module, case.source, pairs, "quick", 30.0)
    assert killer is None, said


def test_tests_kill_mutants_of_the_oracle(worker) -> None:
    module = "kvproto.visibility"
    case = next(case for case in cases_of(module) if case.lines[1] == "return key < query")
    killer, said = worker.ask("judged_by_tests", module, case.mutant.of(case.source))
    assert killer is not None
    assert "test_visibility" in killer[1], said
    assert worker.ask("judged_by_tests", module, case.source)[0] is None


def test_clauses_that_execute_the_statement_are_chosen() -> None:
    case = next(case for case in cases_of("reference_impl.full") if case.mutant.function)
    line = case.mutant.line
    runs = {"seconds": 1.0, "lines": {"reference_impl.full": [line]}}
    other = {"seconds": 0.1, "lines": {"reference_impl.full": [line + 500]}}
    coverage = {
        "executes": {"clauses": {"A": runs, "B": other}, "constructed": {}, "imported": {}},
        "constructs": {
            "clauses": {"A": other},
            "constructed": {"reference_impl.full": [line]},
            "imported": {},
        },
        "nothing": {"clauses": {"A": other}, "constructed": {}, "imported": {}},
    }
    assert pairs_for(case, coverage, Counter()) == [("constructs", "A"), ("executes", "A")]


def test_equivalents_name_mutants() -> None:
    for entry in EQUIVALENTS:
        named = [case for case in cases_of(entry.module) if case.equivalent is entry]
        assert named, f"{entry.module} {entry.function}: {entry.becomes}"
        assert entry.reason
