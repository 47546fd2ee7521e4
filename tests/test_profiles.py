"""Works with what? The profiles of consumers, and their verdicts on classes of other projects."""

import json

import pytest

from conformance import check
from conformance.cli import main
from conformance.profiles import CONSUMERS, Answer, Consumer, Need, judge
from conformance.traits import Traits
from conformance.verdict import Report, Result, Verdict
from kvproto import REGISTRY
from tests.judging import MLX_LM, SGLANG, needs_mlx_lm_032

STORING = Traits(
    kind="attention",
    members=("is_trimmable", "make_mask", "offset", "state", "trim", "update_and_fetch"),
    quantized=False,
    opaque=False,
    batched=False,
    restores=True,
    head_dims=((8, 12),),
    trims_new=True,
    trims_later=True,
)


def report(traits=STORING, **verdicts):
    """A report in which every clause passes but these."""
    found = {clause.replace("-", "_"): Verdict.PASS for clause in REGISTRY} | verdicts
    return Report(
        target="x:Y",
        class_name="x.Y",
        contracts=[],
        visibility="full",
        claims=[],
        notes=[],
        results=[Result(clause.replace("_", "-"), verdict) for clause, verdict in found.items()],
        effort="quick",
        traits=traits,
    )


@pytest.mark.parametrize("name", CONSUMERS)
def test_every_profile_names_clauses_and_functions(name):
    consumer = CONSUMERS[name]
    assert consumer.about
    for clause in consumer.relied_on():
        assert clause in REGISTRY, clause
    assert all(need.function and need.why for need in consumer.needs)


def test_each_use_of_the_packages_has_its_profile():
    uses = "generate kv-bits speculative batch prompt-file prompt-store pipeline sliding-window"
    uses += " latent-attention shared-kv hybrid"
    expected = {f"mlx-lm:{use}" for use in uses.split()} | {"mlx-vlm:generate"}
    expected |= {f"sglang:{use}" for use in ("batched-decode", "prefix-hit", "snapshot")}
    assert set(CONSUMERS) == expected


@pytest.mark.parametrize(
    ("need", "verdict", "answer"),
    [
        ({}, Verdict.PASS, Answer.YES),
        ({}, Verdict.SKIP, Answer.YES),
        ({}, Verdict.FAIL, Answer.NO),
        ({}, Verdict.EXPECTED_FAILURE, Answer.NO),
        ({}, Verdict.BLOCKED, Answer.NOT_JUDGED),
        ({}, Verdict.ERROR, Answer.NOT_JUDGED),
        ({}, Verdict.NOT_RUN, Answer.NOT_JUDGED),
        ({"lost": "memory"}, Verdict.FAIL, Answer.DEGRADED),
        ({"unsure": "it may not"}, Verdict.FAIL, Answer.NOT_JUDGED),
    ],
)
def test_what_a_verdict_on_a_clause_comes_to(need, verdict, answer):
    consumer = Consumer("a:b", "", ("attention",), (Need(("TRIM-1",), "f", "trims", **need),))
    judgement = consumer.judge(report(TRIM_1=verdict))
    assert judgement.answer is answer
    assert judgement.blocking == (() if answer is Answer.YES else ("TRIM-1",))


def test_the_worst_finding_decides():
    needs = (Need(("TRIM-1",), "f", "trims"), Need(("POS-2",), "f", "counts", lost="speed"))
    consumer = Consumer("a:b", "", ("attention",), needs)
    judgement = consumer.judge(report(TRIM_1=Verdict.FAIL, POS_2=Verdict.FAIL))
    assert judgement.answer is Answer.NO
    assert judgement.blocking == ("TRIM-1",)


def test_a_clause_that_was_not_run_is_no_evidence():
    whole = report()
    part = report()
    part.results = [result for result in part.results if result.clause != "UPD-2"]
    assert judge(whole)["mlx-lm:generate"].answer is Answer.YES
    assert judge(part)["mlx-lm:generate"].answer is Answer.NOT_JUDGED
    whole.traits = None
    assert judge(whole)["mlx-lm:generate"].answer is Answer.NOT_JUDGED


def test_report_and_json_show_the_profiles_before_the_clauses():
    found = check("reference_impl:KVCache", effort="quick")
    text = str(found)
    assert text.index("mlx-lm:speculative") < text.index("  position")
    data = json.loads(json.dumps(found.to_json()))
    keys = list(data)
    assert keys.index("profiles") < keys.index("results")
    again = Report.from_json(data, [Result.from_json(result) for result in data["results"]])
    assert again.profiles == found.profiles
    other = {name: str(each.answer) for name, each in found.profiles.items()}
    other = {name: answer for name, answer in other.items() if answer != "yes"}
    # It has no keys attribute; and mlx-lm restores the name KVCache as a class of its own.
    assert other == {
        "mlx-lm:pipeline": "no",
        "mlx-lm:prompt-file": "not judged",
        "sglang:prefix-hit": "no",
    }


def test_explain_a_consumer(capsys):
    assert main(["explain", "mlx-lm:speculative"]) == 0
    shown = capsys.readouterr().out
    assert "speculative_generate_step: _rewind_cache" in shown
    assert "TRIM-1" in shown
    assert "https://github.com/ml-explore/mlx-lm/issues/1494" in shown
    assert main(["explain", "TRIM-1"]) == 0
    assert "mlx-lm:speculative" in capsys.readouterr().out
    assert main(["explain", "mlx-lm:nothing"]) == 2
    assert "mlx-lm:generate" in capsys.readouterr().err


@needs_mlx_lm_032
@pytest.mark.network
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("KVCache", {"generate": "yes", "speculative": "yes", "kv-bits": "yes"}),
        (
            "RotatingKVCache(max_size=8)",
            {"generate": "yes", "kv-bits": "no REF-1", "speculative": "no TRIM-3"},
        ),
        (
            "QuantizedKVCache(group_size=32, bits=8)",
            {"latent-attention": "no QNT-1", "batch": "no BATCH-7", "speculative": "yes"},
        ),
        ("ChunkedKVCache(8)", {"batch": "no BATCH-7", "kv-bits": "degraded", "generate": "yes"}),
        ("ConcatenateKVCache()", {"speculative": "no TRIM-1 TRIM-2 POS-6", "generate": "yes"}),
        (
            "ArraysCache(2)",
            {"speculative": "no REC-4", "generate": "yes", "prompt-store": "degraded"},
        ),
        ("BatchKVCache([1, 0])", {"generate": "no", "prompt-file": "no REST-2"}),
    ],
)
def test_verdicts_on_the_classes_of_mlx_lm(call, expected):
    needed = [c for use in expected for c in CONSUMERS[f"mlx-lm:{use}"].relied_on()]
    clauses = [clause for clause in {*needed, "REF-1"} if clause in REGISTRY]
    found = check(f"{MLX_LM}:{call}", effort="quick", clauses=clauses).profiles
    for use, wanted in expected.items():
        judgement = found[f"mlx-lm:{use}"]
        answer, *clauses = wanted.split()
        assert str(judgement.answer).split()[0] == answer, (use, judgement)
        assert set(judgement.blocking) <= set(clauses), (use, judgement)
        assert bool(judgement.blocking) == bool(clauses), (use, judgement)


@pytest.mark.network
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "AttentionOffsetCache",
            {
                "sglang:batched-decode": "yes",
                "mlx-lm:generate": "no FREE-1",
                "mlx-lm:speculative": "no FREE-1",
                "mlx-lm:prompt-file": "no",
            },
        ),
        (
            "ContiguousAttentionKVCache()",
            {
                "mlx-lm:generate": "yes",
                "mlx-lm:speculative": "no",
                "mlx-lm:latent-attention": "no UPD-5",
                "mlx-lm:prompt-file": "no",
                "mlx-lm:batch": "no BATCH-7",
            },
        ),
        (
            "WindowedAttentionKVCache(8)",
            {"mlx-lm:speculative": "no", "mlx-lm:prompt-file": "no", "sglang:prefix-hit": "no"},
        ),
    ],
)
def test_verdicts_on_the_classes_of_sglang(call, expected, release):
    """They cannot be trimmed, and a prompt file loses them."""
    pytest.importorskip("mlx_lm")
    path = release("sglang", "0.5.23") / SGLANG
    needed = [clause for name in expected for clause in CONSUMERS[name].relied_on()]
    clauses = [clause for clause in set(needed) if clause in REGISTRY]
    found = check(f"{path}:{call}", effort="quick", clauses=clauses).profiles
    for name, wanted in expected.items():
        judgement = found[name]
        answer, *blocking = wanted.split()
        assert str(judgement.answer) == answer, (name, judgement)
        assert set(judgement.blocking) >= set(blocking), (name, judgement)
