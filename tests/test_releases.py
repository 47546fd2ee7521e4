"""A quick subset of ``python -m tests.releases``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fetch import CannotFetch
from tests.releases import ROWS, Row, verdict

pytestmark = pytest.mark.network

QUICK = {"A04", "A11", "A31"}


@pytest.mark.parametrize("row", [r for r in ROWS if r.id in QUICK], ids=lambda row: row.id)
def test_fault_is_found_and_its_fix_is(row: Row, pytestconfig: pytest.Config) -> None:
    pytest.importorskip("mlx_lm")
    cache: Path = pytestconfig.cache.mkdir("releases")
    try:
        assert verdict(row, cache) == ""
    except CannotFetch as error:
        pytest.skip(str(error))
