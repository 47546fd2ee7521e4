"""Fixtures that fetch releases of other packages, as they were published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fetch import CannotFetch, fetch

pytest.register_assert_rewrite("tests.judging")


@pytest.fixture(scope="session")
def release(pytestconfig: pytest.Config) -> Callable[[str, str], Path]:
    """The unpacked files of a release, fetched once and kept in pytest's cache directory."""

    def unpacked(name: str, version: str) -> Path:
        try:
            return fetch(name, version, pytestconfig.cache.mkdir("releases"))
        except CannotFetch as error:
            pytest.skip(str(error))

    return unpacked
