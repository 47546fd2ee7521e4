"""`kvproto typecheck`, and the table of verdicts that mypy gives."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from conformance.cli import main
from tests.judging import needs_mlx_lm_032
from tests.typing.checkers import CASES, ROOT, differences
from tests.typing.table import CLASSES, FOLDER, table, verdicts


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """One folder, so that the runs share mypy's cache."""
    return tmp_path_factory.mktemp("typecheck")


@pytest.mark.parametrize("python_version", ["3.10", "3.13"])
@pytest.mark.network
@needs_mlx_lm_032
def test_verdicts_are_those_of_the_table(work, release, python_version):
    roots = {"sglang-0.5.23": release("sglang", "0.5.23")}
    roots["mlx_vlm-0.6.15"] = release("mlx-vlm", "0.6.15")
    for name, results in verdicts(CLASSES, roots, work, python_version).items():
        assert not any(result.opaque for result in results)
        assert table(name, results) == (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_verdicts_on_the_reference_caches(work):
    (results,) = verdicts(["reference_impl"], {}, work).values()
    expected = (FOLDER / "reference_impl.md").read_text(encoding="utf-8")
    assert table("reference_impl", results) == expected
    # They are annotated: nothing is left unchecked but what a container has of its children.
    unchecked = {r.target: {m for v in r.verdicts for m in v.unchecked} for r in results}
    children = {"__getitem__", "caches", "state", "from_state"}
    assert unchecked.pop("reference_impl:CompositeCache") == children
    assert not any(unchecked.values()), unchecked


@pytest.mark.parametrize("python_version", ["3.10", "3.13"])
def test_mypy_says_what_the_expectation_files_expect(python_version):
    assert not differences("mypy", sorted(CASES.glob("*.py")), python_version)


def test_the_lines_for_authors_are_those_under_test():
    page = (ROOT / "docs" / "typing.md").read_text(encoding="utf-8")
    case = (CASES / "snippet.py").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(if TYPE_CHECKING:\n.*?)```", page, re.DOTALL)
    assert lines in case


def test_an_expectation_that_does_not_hold_is_reported(tmp_path):
    case = tmp_path / "case.py"
    text = "x: int = ''\ny: int = 1  # error[assignment]\nz: int = ''  # error[misc]\n"
    # The path, because mypy keeps the messages on a file of the same name and content.
    case.write_text(f"{text}# {case}\n")
    said = [line.partition(": ")[2] for line in differences("mypy", [case], "3.13")]
    assert said == [
        "case.py:1: an error that is not expected (assignment)",
        "case.py:2: no error, expected one [assignment]",
        "case.py:3: assignment, expected misc",
    ]


@pytest.fixture
def cache_file(work, monkeypatch):
    monkeypatch.chdir(work)
    monkeypatch.setenv("COLUMNS", "120")

    def write(text):
        (work / "mine.py").write_text(
            "import mlx.core as mx\nfrom typing import Any, Literal\n" + text
        )

    return write


TYPED = """
class Mine:
    def __init__(self) -> None:
        self.offset = 0
    @property
    def state(self) -> tuple[mx.array, ...]:
        return ()
    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None
                  ) -> Literal["causal"] | None:
        return None
    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.offset += keys.shape[2]
        return keys, values
"""


def test_one_table_protocol_by_protocol(capsys, cache_file):
    cache_file(TYPED + "    def trim(self, n: int) -> None: ...\n")
    assert main(["typecheck", "mine.py:Mine"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "AttentionCache satisfied" in shown
    assert "Trimmable missing member no is_trimmable" in shown
    assert "Got: def trim(self, n: int) -> None" in shown
    assert "speculative_generate_step" in shown
    assert "Not checked" not in shown


def test_the_exit_status_is_for_continuous_integration(capsys, cache_file):
    cache_file(TYPED)
    target = "mine.py:Mine"
    assert main(["typecheck", target, "--as", "AttentionCache", "--as", "HasState"]) == 0
    assert main(["typecheck", target, "--as", "Trimmable"]) == 1
    assert main(["typecheck", target, "--as", "Trimable"]) == 2
    assert "there are HasOffset[int]" in capsys.readouterr().err
    cache_file(TYPED.replace("-> tuple[mx.array, mx.array]", "-> list[mx.array]"))
    assert main(["typecheck", target]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "is no kind of cache; the nearest is AttentionCache" in shown
    assert "Got: def update_and_fetch(self, keys: array, values: array) -> list[array]" in shown


def test_what_is_not_annotated_is_said_not_to_be_checked(capsys, cache_file):
    cache_file(
        "class Mine:\n"
        "    def __init__(self):\n"
        "        self.offset = 'here'\n"
        "    def update_and_fetch(self, keys, values):\n"
        "        return None\n"
    )
    assert main(["typecheck", "mine.py:Mine", "--json", "--as", "HasOffset"]) == 1
    (mine,) = json.loads(capsys.readouterr().out)["targets"]
    verdict = {v["protocol"]: v for v in mine["verdicts"]}
    assert verdict["UpdatesAndFetches[mx.array]"]["satisfied"]
    assert verdict["UpdatesAndFetches[mx.array]"]["unchecked"] == ["update_and_fetch"]
    # mypy reads the body of the constructor only with --check-untyped-defs.
    assert verdict["HasOffset[int]"]["satisfied"]
    differing = {v["protocol"]: v["reason"] for v in mine["differing"]}
    assert 'offset: expected "int", got "str"' in differing["HasOffset[int]"]


def test_a_base_class_that_mypy_cannot_see_is_no_pass(capsys, cache_file):
    cache_file("from nowhere_to_be_found import Base  # type: ignore\nclass Mine(Base): ...\n")
    assert main(["typecheck", "mine.py:Mine"]) == 1
    assert "base class that mypy cannot see" in " ".join(capsys.readouterr().out.split())


def test_a_function_that_makes_a_cache(capsys, cache_file):
    cache_file(TYPED + "def typed() -> Mine: ...\ndef untyped(): ...\n")
    assert main(["typecheck", "mine.py:typed", "--as", "AttentionCache"]) == 0
    assert main(["typecheck", "mine.py:untyped"]) == 2
    assert "annotate it, or name the class" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("mine.py:Yours", 'has no attribute "Yours"'),
        ("nowhere.to_be_found:Mine", "nowhere"),
        ("theirs.py:Mine", "no file 'theirs.py'"),
    ],
)
def test_what_is_not_there_is_an_error(capsys, cache_file, target, says):
    cache_file(TYPED)
    assert main(["typecheck", target]) == 2
    assert says in capsys.readouterr().err


def test_without_mypy_it_says_what_to_install(capsys, cache_file, monkeypatch):
    cache_file(TYPED)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["typecheck", "mine.py:Mine"]) == 2
    assert "pip install 'mlx-kvproto[typecheck]'" in capsys.readouterr().err
