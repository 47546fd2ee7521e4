"""The registry: clauses are complete, and a MUST that names no consumer does not load."""

import re
import subprocess
import sys

import pytest

from conformance.engine import CHECKS
from kvproto import REGISTRY, Clause, Level
from kvproto.clause import Registry


def clause(**changes):
    given = {"id": "X-1", "level": Level.SHOULD, "text": "do it.", "why": "Because."} | changes
    return Clause(**given)


def test_a_must_names_a_consumer():
    with pytest.raises(ValueError, match=r"X-1 is a MUST but names no consumer"):
        clause(level=Level.MUST)
    assert clause(level=Level.MUST, relied_on_by=("someone",)).sentence == "A cache MUST do it."


@pytest.mark.parametrize("changes", [{"id": "x1"}, {"text": " "}, {"why": ""}])
def test_an_incomplete_clause_is_refused(changes):
    with pytest.raises(ValueError, match="Clause"):
        clause(**changes)


def test_an_id_is_registered_once():
    registry = Registry()
    registry.register("one", "One", "", (clause(),))
    with pytest.raises(ValueError, match="X-1"):
        registry.register("two", "Two", "", (clause(),))
    with pytest.raises(ValueError, match="'one'"):
        registry.register("one", "One", "", ())
    with pytest.raises(KeyError, match="No clause 'Y-1'"):
        registry["Y-1"]


def test_contracts_stand_in_the_order_of_the_spec():
    names = [contract.name for contract in REGISTRY.contracts]
    assert names == [
        *("position", "mask", "update", "opaque", "state", "restore", "copying"),
        *(
            "trim",
            "measure",
            "window",
            "quantize",
            "batch",
            "recurrent",
            "composite",
            "data-free",
            "refuse",
        ),
        *("read-back", "decode", "pool", "prompt", "snapshot", "layout", "threads"),
    ]


def test_every_clause_has_a_check_and_every_check_a_clause():
    import conformance.checks  # noqa: F401 (registers them)

    assert set(CHECKS) == set(REGISTRY)


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=list(REGISTRY))
def test_a_clause_reads_as_a_sentence(entry):
    assert entry.text.endswith(".")
    assert entry.why.endswith(".")
    verb = entry.text.removeprefix("never ").removeprefix("not ").split(" ")[0].rstrip(",")
    assert not verb.endswith("s"), f"{entry.id}: {entry.sentence}"
    for fault in entry.faults:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", fault), fault


def test_importing_kvproto_imports_neither_mlx_nor_pytest():
    code = (
        "import sys, kvproto; sys.exit(any(m in sys.modules for m in ('mlx', 'pytest', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_plugin_imports_pytest_only():
    code = (
        "import sys, pytest; before = set(sys.modules); import _kvproto_pytest;"
        "print(sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "['_kvproto_pytest']"
