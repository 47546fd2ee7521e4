"""What ``pytest --pyargs conformance`` collects: one test for each subject and clause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from _kvproto_pytest import suite_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize(("subject", "clause"), suite_of(metafunc.config).parameters())


def test_clause(
    subject: str,
    clause: str,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    suite_of(pytestconfig).run(subject, clause, record_property)
