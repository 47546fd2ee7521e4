"""Each known fault of mlx-lm 0.32.2 shows up under its clause, and no control is flagged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.known_faults import CONTROLS, MUSTS, NOT_SHOWN, ROWS
from tests.test_third_party import MLX_LM, failures, judge, needs_mlx_lm_032, programs_reproduce


@needs_mlx_lm_032
@pytest.mark.parametrize("call", MUSTS)
def test_known_faults_of_a_class_show_and_nothing_else_does(call: str, tmp_path: Path) -> None:
    results = judge(f"{MLX_LM}:{call}", tmp_path)
    found = {result["clause"]: result for result in results}
    for row in ROWS:
        if row.call == call:
            result = found[row.clause]
            assert result["verdict"] == "fail", (row, result["message"])
            assert row.says in result["message"], (row, result["message"])
    assert failures(results, "MUST") == MUSTS[call]
    for control, subject, clause, right in CONTROLS:
        if subject == call:
            assert found[clause]["verdict"] == "pass", (control, right, found[clause]["message"])
    named = {row.clause for row in ROWS if row.call == call}
    programs_reproduce([found[clause] for clause in named], tmp_path)


def test_each_known_fault_is_shown_or_has_a_reason() -> None:
    shown = {row.id for row in ROWS}
    assert not shown & set(NOT_SHOWN)
    assert all(row.call in MUSTS for row in ROWS)
