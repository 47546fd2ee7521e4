"""check(): verdicts, expected failures, restrictions, programs - on small caches made here."""

import json
import subprocess
import sys

import mlx.core as mx
import pytest

from conformance import Subject, Verdict, check
from conformance.program import folded, ranges
from conformance.verdict import Result, reports_to_json
from kvproto import REGISTRY
from reference_impl import KVCache, OffsetCache, SlidingWindowKVCache

REFERENCE = [
    "reference_impl:OffsetCache(5)",
    "reference_impl:KVCache()",
    "reference_impl:KVCache(capacity=3)",
    "reference_impl:SlidingWindowKVCache(8)",
    "reference_impl:SlidingWindowKVCache(1)",
    "reference_impl:SlidingWindowKVCache(8, sinks=2)",
    "reference_impl:RotatedKVCache()",
]


class Single(KVCache):
    """Not to be merged: the inherited merge would turn a subclass into another class (BATCH-2)."""

    merge = None


class OneRowTooMany(Single):
    """Returns a row of zeros after the tokens."""

    def update_and_fetch(self, keys, values):
        keys, values = super().update_and_fetch(keys, values)
        pad = [(0, 0), (0, 0), (0, 1), (0, 0)]
        return mx.pad(keys, pad), mx.pad(values, pad)


class OneSequence(Single):
    """Refuses batches, cleanly."""

    def update_and_fetch(self, keys, values):
        if keys.shape[0] != 1:
            raise ValueError(f"OneSequence takes one sequence, got a batch of {keys.shape[0]}")
        return super().update_and_fetch(keys, values)


class OneSequenceLate(Single):
    """Refuses batches after it has stored them."""

    def update_and_fetch(self, keys, values):
        result = super().update_and_fetch(keys, values)
        if keys.shape[0] != 1:
            raise ValueError("too late")
        return result


class Unrepeatable(KVCache):
    """Every third instance of the class moves offset too far."""

    made = 0

    def update_and_fetch(self, keys, values):
        type(self).made += 1
        return super().update_and_fetch(keys, values)

    @property
    def offset(self):
        return KVCache.offset.fget(self) + (type(self).made % 3 == 2)


@pytest.mark.parametrize("target", REFERENCE)
def test_the_reference_caches_conform_strictly(target):
    report = check(target, effort="quick", strict=True)
    assert report.conforms, str(report)


def test_a_fault_names_its_clause_and_blocks_what_builds_on_it():
    report = check(OneRowTooMany, effort="quick")
    assert report["UPD-2"].verdict is Verdict.FAIL
    assert report["UPD-14"].verdict is Verdict.BLOCKED
    assert report["UPD-14"].message == "builds on UPD-2"
    assert not report.conforms
    failed = {result.clause for result in report.results if result.verdict is Verdict.FAIL}
    assert failed == {"UPD-2"}


def test_a_clean_refusal_restricts_a_claim_and_is_told():
    report = check(OneSequence, effort="quick")
    assert report.conforms, str(report)
    assert report["UPD-13"].verdict is Verdict.SKIP
    assert any("batch sizes: 2 refused" in note for note in report.notes)


def test_a_late_refusal_restricts_nothing():
    report = check(OneSequenceLate, effort="quick")
    assert report["UPD-13"].verdict is Verdict.FAIL
    assert not any("batch sizes" in note for note in report.notes)


def test_expected_failures_are_strict():
    subject = Subject(
        "one", OneRowTooMany, expected_failures={"UPD-2": "issue #1", "POS-1": "issue #2"}
    )
    report = check(subject, effort="quick")
    assert report["UPD-2"].verdict is Verdict.EXPECTED_FAILURE
    assert report["UPD-2"].message.startswith("issue #1")
    assert report["POS-1"].verdict is Verdict.UNEXPECTED_PASS
    assert [result.clause for result in report.broken] == ["POS-1"]


def test_some_clauses_only_is_incomplete():
    report = check(KVCache, effort="quick", clauses=["POS-1", "POS-2"])
    assert [result.clause for result in report.results] == ["POS-1", "POS-2"]
    assert not report.broken
    assert not report.complete
    assert not report.conforms
    assert "INCOMPLETE" in str(report)


def test_verdicts_repeat_themselves():
    one, two = (check(OneRowTooMany, effort="quick") for _ in range(2))
    for first, second in zip(one.results, two.results, strict=True):
        first.seconds = second.seconds = 0
        assert first == second


def test_a_cache_that_does_not_repeat_itself_is_still_judged():
    report = check(Unrepeatable, effort="quick", clauses=["POS-2", "MASK-1"])
    assert all(result.verdict is not Verdict.ERROR for result in report.results), str(report)


class AcceptsZeroTokens(Single):
    """make_mask(0) is answered."""

    def make_mask(self, N, *, return_array=False, window_size=None):
        return super().make_mask(max(N, 1), return_array=return_array, window_size=window_size)


def test_strict_makes_should_decide():
    assert check(AcceptsZeroTokens, effort="quick").conforms
    report = check(AcceptsZeroTokens, effort="quick", strict=True)
    assert [result.clause for result in report.broken] == ["MASK-11"]


def test_progress_and_json():
    seen = []
    report = check(OffsetCache, effort="quick", progress=seen.append)
    assert [result.clause for result in seen] == list(REGISTRY)
    data = json.loads(json.dumps(reports_to_json([report])))
    assert data["complete"] is True
    (subject,) = data["subjects"]
    assert subject["kinds"] == ["position", "mask", "state", "data-free", "refuse"]
    assert [Result.from_json(entry) for entry in subject["results"]] == [
        Result.from_json(result.to_json()) for result in report.results
    ]


@pytest.mark.parametrize(
    ("wrong", "error"), [(KVCache(), TypeError), (3, TypeError), ("no_module:X", Exception)]
)
def test_bad_arguments_are_refused(wrong, error):
    with pytest.raises(error, match=r"fresh cache|no module"):
        check(wrong)


def test_the_program_runs_without_this_project(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import mlx.core as mx\nfrom mlx_lm.models.cache import KVCache\n\n\n"
        "class Mine(KVCache):\n    def make_mask(self, N, return_array=False, window_size=None):\n"
        "        return super().make_mask(N, return_array=return_array, window_size=None)\n"
    )
    report = check(f"{tmp_path}/mine.py:Mine", effort="quick", clauses=["MASK-6"])
    result = report["MASK-6"]
    assert result.verdict is Verdict.FAIL
    program = tmp_path / "program.py"
    program.write_text(result.program)
    for name in ("kvproto", "conformance", "hypothesis", "numpy"):
        assert f"import {name}" not in result.program
        assert f"from {name}" not in result.program
    ran = subprocess.run([sys.executable, program], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.strip().endswith("AssertionError: [0, 1]")
    shown = str(report)
    for text in ("MASK-6 MUST", "relied on by", "expected  tokens 1", "observed  tokens 0, 1"):
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_token_numbers_read_well():
    assert ranges([0, 1, 2, 5, 7, 8, -1]) == "0-2, 5, 7, 8, ?"
    assert ranges([]) == "none"


def test_runs_of_equal_steps_are_folded():
    body = [line for t in range(4) for line in ("mask = m()", f"k = u(*tokens([{t}]))")]
    assert folded([*body, "assert k"]) == [
        "for t in range(0, 4):",
        "    mask = m()",
        "    k = u(*tokens([t]))",
        "assert k",
    ]
    assert folded(["u(*tokens([3]))", "u(*tokens([5]))"]) == ["u(*tokens([3]))", "u(*tokens([5]))"]


def test_windowed_cache_may_keep_more_than_its_window():
    """W+S-1 rows after a multi-token append are legal (ml-explore/mlx-lm#1914)."""

    class KeepsMore(SlidingWindowKVCache):
        merge = None

    assert check(lambda: KeepsMore(4), effort="quick").conforms


class EvictsWhatItReturned(KVCache):
    """Returns all rows, and then keeps the newest 8."""

    merge = None

    def update_and_fetch(self, keys, values, /):
        offset = self._offset
        if self._buffers is not None:
            keys = mx.concatenate([self._buffers[0], keys], axis=2)
            values = mx.concatenate([self._buffers[1], values], axis=2)
        self._buffers = keys[:, :, -8:], values[:, :, -8:]
        self._offset = offset + keys.shape[2] - (self._held if offset else 0)
        self._held = min(8, keys.shape[2])
        return keys, values


def test_bytes_of_a_cache_that_evicts_are_those_that_it_kept():
    report = check(EvictsWhatItReturned, claims={"visibility": "lossy"}, clauses=["MEAS-3"])
    assert report["MEAS-3"].verdict is Verdict.PASS, report["MEAS-3"]
