"""The kvproto command."""

import json

import pytest

from conformance.cli import main
from kvproto import REGISTRY


def test_list_shows_every_clause(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(clause in shown for clause in REGISTRY)
    assert f"{len(REGISTRY)} clauses, {len(REGISTRY)} with a test" in shown
    assert main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(REGISTRY)


def test_explain_says_why_and_links_the_issues(capsys):
    assert main(["explain", "mask-6"]) == 0
    shown = capsys.readouterr().out
    assert "honour window_size for N == 1 too" in shown
    assert "https://github.com/ml-explore/mlx-lm/issues/843" in shown
    assert "gemma3_text" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", "MASK-99"], "there are MASK-1"),
        (["explain", "NOPE"], "kvproto list"),
        (["check", "nothing"], "has no colon"),
        (["check", "reference_impl:KVCache", "--clause", "POS-99"], "there are POS-1"),
        (["check", "reference_impl:KVCache", "--claim", "visibility"], "NAME=VALUE"),
        (["check", "--claim", "visibility=full"], "needs a target"),
    ],
)
def test_bad_usage_is_told_what_to_write(capsys, arguments, says):
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_check_of_a_few_clauses(capsys, tmp_path):
    arguments = ["check", "reference_impl:KVCache", "--clause", "POS-1", "--effort", "quick"]
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 0
    assert "INCOMPLETE" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["complete"] is False


def test_a_claim_from_the_command_line(capsys):
    target = "reference_impl:SlidingWindowKVCache(8)"
    arguments = ["check", target, "--clause", "POS-1", "--claim", "visibility=window(4)"]
    assert main(arguments) == 0
    assert "window(4)  (claimed)" in capsys.readouterr().out


def test_without_a_command_it_shows_help(capsys):
    assert main([]) == 2
    assert "check" in capsys.readouterr().out
