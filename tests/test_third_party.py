"""Verdicts on classes that nobody here wrote, and on the releases that fixed a fault."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from conformance import Verdict, check
from tests.judging import (
    MLX_LM,
    SGLANG,
    failures,
    judge,
    needs_mlx_lm_032,
    programs_reproduce,
)

pytestmark = pytest.mark.network


@needs_mlx_lm_032
def test_strict_makes_its_hazards_decide():
    report = check(f"{MLX_LM}:KVCache", effort="quick", strict=True)
    assert not report.conforms
    assert {r.clause for r in report.broken} >= {"UPD-6", "UPD-8", "UPD-10", "STATE-6"}


def test_mlx_lm_0_28_0_ignores_windows(tmp_path, release):
    """ml-explore/mlx-lm#487 and #843; neither is found in 0.32.2, see known_faults.py."""
    path = release("mlx-lm", "0.28.0")
    results = judge(f"{MLX_LM}:RotatingKVCache(max_size=8)", tmp_path, path=path)
    assert failures(results, "MUST") == {"MASK-2", "REF-1", "STATE-1"}
    programs_reproduce(results, tmp_path, path)
    results = judge(f"{MLX_LM}:KVCache()", tmp_path, path=path)
    # For N > 1 it answers "causal" whatever the window; and its empty state raises.
    assert failures(results, "MUST") == {"MASK-4", "MASK-6", "STATE-1"}
    programs_reproduce(results, tmp_path, path)


@pytest.fixture
def sglang(release):
    pytest.importorskip("mlx_lm")
    return release("sglang", "0.5.23")


def test_sglang_offset_cache_passes_every_data_free_clause(tmp_path, sglang):
    results = judge(f"{SGLANG}:AttentionOffsetCache", tmp_path, directory=sglang)
    assert failures(results, "MUST") == set()
    free = {r["clause"]: r["verdict"] for r in results if r["clause"].startswith("FREE-")}
    assert set(free.values()) == {"pass"}
    assert failures(results, "SHOULD") == {"MASK-11"}


@pytest.mark.parametrize(
    "call", ["ContiguousAttentionKVCache()", "ContiguousAttentionKVCache(None, None, 4)"]
)
def test_sglang_contiguous_cache_needs_equal_head_dims(tmp_path, sglang, call):
    results = judge(f"{SGLANG}:{call}", tmp_path, directory=sglang)
    # Head dims; write_token on a new cache; reset keeps the dtype.
    assert failures(results, "MUST") == {"UPD-5", "DEC-1", "DEC-3"}
    said = next(r["message"] for r in results if r["clause"] == "UPD-5")
    assert "head dim 8 (values 12)" in said
    assert next(r["verdict"] for r in results if r["clause"] == "UPD-14") == "pass"
    programs_reproduce(results, tmp_path, directory=sglang)


def test_sglang_windowed_cache_may_refuse_full_context(tmp_path, sglang):
    results = judge(f"{SGLANG}:WindowedAttentionKVCache(8)", tmp_path, directory=sglang)
    assert failures(results, "MUST") == {"UPD-5", "DEC-3"}
    verdict = {r["clause"]: r["verdict"] for r in results}
    for clause in ("MASK-1", "MASK-2", "MASK-3", "MASK-4", "MASK-5", "MASK-6", "MASK-7", "UPD-14"):
        assert verdict[clause] == "pass", clause


def test_sglang_pool_and_the_cache_over_it(sglang):
    folder = sglang / SGLANG.rpartition("/")[0]
    report = check(
        f"{folder}/attention_kv_pool.py:MlxAttentionKVPool(24, 2, 3, 8)",
        claims={"backed_cache": f"{folder}/attention_kv_cache.py:PoolBackedAttentionKVCache"},
    )
    # -1 is its last slot; a second update loses the chunk of the first one.
    assert {r.clause for r in report.broken} == {"POOL-2", "POOL-3"}, str(report)
    assert report["POOL-1"].verdict is Verdict.PASS
    blocked = {r.clause for r in report.results if r.verdict is Verdict.BLOCKED}
    assert blocked == {"POOL-4", "POOL-5", "COPY-2"}
    assert "takes slots [-1]" in report["POOL-2"].message
    assert report["POOL-3"].program.count("update_and_fetch(") == 2


def test_sglang_layout_of_caches(sglang):
    path = f"{sglang / SGLANG.rpartition('/')[0]}/layout.py"
    made = "MlxModelCacheLayout.from_attention_discovery([0, 1, 2], ['attn', None, 'attn'], {0: 8})"
    report = check(f"{path}:{made}")
    assert not report.broken, str(report)
    assert {report[f"LAY-{n}"].verdict for n in (1, 2, 3)} == {Verdict.PASS}


def test_narrowing_on_sglangs_real_class(sglang: Path):
    """The error that this project began with: found out before the call."""
    from kvproto import is_data_free, is_storage_backed

    spec = importlib.util.spec_from_file_location("attention_kv_cache", sglang / SGLANG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shim = module.AttentionOffsetCache(3)
    assert is_data_free(shim)
    assert not is_storage_backed(shim)
    empty = module.ContiguousAttentionKVCache()
    assert empty.state == shim.state == ()
    assert is_storage_backed(empty)
    assert not is_data_free(empty)
