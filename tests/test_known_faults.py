"""Each known fault of mlx-lm 0.32.2 shows up under its clause, and no control is flagged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance import check
from tests.judging import MLX_LM, failures, judge, needs_mlx_lm_032, programs_reproduce
from tests.known_faults import CONTROLS, FUNCTIONS, MUSTS, NOT_SHOWN, ROWS


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


ADAPTER = """
from mlx_lm.models import cache
from reference_impl import OffsetCache as DataFree

class OfAnotherModule(cache.KVCache):
    pass

class OffsetCache(DataFree):
    def __init__(self):
        super().__init__(0)

class MlxLm:
    def __init__(self):
        self.store = cache.LRUPromptCache()

    def trim_prompt(self, caches, n):
        return cache.trim_prompt_cache(caches, n)

    def save(self, path, caches, metadata):
        cache.save_prompt_cache(path, caches, dict(metadata))

    def load(self, path):
        return cache.load_prompt_cache(path, return_metadata=True)

    def insert(self, tokens, caches):
        self.store.insert_cache("model", list(tokens), caches)

    def fetch(self, tokens):
        return self.store.fetch_nearest_cache("model", list(tokens))
"""


@needs_mlx_lm_032
@pytest.mark.parametrize(("row", "caches", "expected"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_known_faults_of_prompt_files_and_stores(
    row: str,
    caches: tuple[str, ...],
    expected: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "adapter.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "adapter", raising=False)
    own = ("OfAnotherModule", "OffsetCache")
    named = [f"{'adapter' if call.startswith(own) else MLX_LM}:{call}" for call in caches]
    report = check("adapter:MlxLm()", claims={"caches": named})
    assert {result.clause for result in report.broken} == expected, str(report)


def test_each_known_fault_is_shown_or_has_a_reason() -> None:
    shown = {row.id for row in ROWS} | {row for row, _, _ in FUNCTIONS}
    assert not shown & set(NOT_SHOWN)
    assert all(row.call in MUSTS for row in ROWS)
