"""Every clause as an ordinary Hypothesis test, for going on where a verdict stops::

    pytest --pyargs conformance.explore --cache mypkg.caches:MyCache
    hypothesis fuzz -- --pyargs conformance.explore --cache mypkg.caches:MyCache

A verdict is reproducible: seeded, and without an example database. Here the settings are those of
the Hypothesis profile in force, so a shared database lets many processes or machines explore
without finding the same again, and HypoFuzz can steer by coverage. Clauses that fail at quick
effort are left to ``kvproto check``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _kvproto_pytest import suite_of
from conformance.engine import CHECKS, BlockedBy, Context, NotApplicable, Session
from conformance.report.terminal import failure_text
from conformance.trace import EndOfTrace, Violation
from conformance.verdict import Verdict

T = TypeVar("T")


class Drawn(Context):
    """A context whose properties are tried once, on values that the running test draws."""

    def __init__(self, session: Session, clause: str, data: st.DataObject) -> None:
        super().__init__(session, clause, examples=1, seed_text="")
        self._data = data

    def for_all(
        self, strategy: st.SearchStrategy[T], property: Callable[[T], None], *, fraction: float = 1
    ) -> None:
        with suppress(EndOfTrace):
            property(self._data.draw(strategy))

    def for_each(self, values: Iterable[T], property: Callable[[T], None]) -> None:
        self.for_all(st.sampled_from(list(values)), property)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    suite = suite_of(metafunc.config)
    sessions = {
        name: Session(candidate.subject, effort="quick", seed=suite.options.seed)
        for name, candidate in suite.candidates.items()
        if candidate.subject is not None
    }
    found: list[Any] = []
    for test in suite.parameters():
        name, clause = test.values
        session = sessions.get(str(name))
        if session is None:
            raise pytest.UsageError(f"kvproto: {suite.candidates[str(name)].unusable}")
        if session.result(str(clause)).verdict is Verdict.PASS:
            found.append(pytest.param(session, clause, id=test.id, marks=test.marks))
    metafunc.parametrize(("session", "clause"), found)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_explore(session: Session, clause: str, data: st.DataObject) -> None:
    try:
        CHECKS[clause].function(Drawn(session, clause, data))
    except (BlockedBy, NotApplicable):
        return
    except Violation as violation:
        result = session.failure(clause, violation)
        raise AssertionError(failure_text(session.subject.target, result)) from None
