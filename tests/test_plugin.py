"""The pytest plugin, in processes of its own, as a third party runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ("--pyargs", "conformance", "--conformance-effort", "quick")
MINE = """
from reference_impl import KVCache, OffsetCache

class Mine(KVCache):
    merge = None  # the inherited one would turn it into another class (BATCH-2)

class OneTooMany(Mine):
    @property
    def offset(self):
        return KVCache.offset.fget(self) + (KVCache.offset.fget(self) > 3)

class Aliases(Mine):
    def make_mask(self, N, *, return_array=False, window_size=None):
        return super().make_mask(max(N, 1), return_array=return_array, window_size=window_size)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def run(directory, *arguments, module="pytest", timeout=None, **environment):
    """Run a command; the console script's way: the current directory is not on the path."""
    code = f"import sys; sys.argv[0] = {module!r}; import {module} as m; sys.exit(m.main())"
    if module != "pytest":
        code = "import sys; from conformance.cli import main; sys.exit(main())"
    else:
        code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-c", f"import sys; sys.path.remove(''); {code}", *arguments],
        cwd=directory,
        env=variables | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def outcomes(ran):
    return ran.stdout.strip().splitlines()[-1]


def test_a_class_of_the_current_directory(project):
    ran = run(project, *QUICK, "--cache", "mine:Mine")
    assert ran.returncode == 0, ran.stdout
    assert "CONFORMS to kvproto" in ran.stdout
    assert "test_clause" not in ran.stderr


def test_without_cache_the_reference_caches_are_tested_and_named(tmp_path):
    ran = run(tmp_path, *QUICK, "-k", "OffsetCache")
    assert "no --cache was given: these are the reference implementations" in ran.stdout
    assert "INCOMPLETE: reference_impl:KVCache() was not run" in ran.stdout
    assert ran.returncode == 1  # it left caches out


def test_a_part_of_the_clauses_is_not_green(project):
    ran = run(project, *QUICK, "--cache", "mine:Mine", "-k", "POS")
    assert "INCOMPLETE" in ran.stdout
    assert ran.returncode == 1


def test_a_failure_shows_clause_tokens_and_program(project):
    ran = run(project, *QUICK, "--cache", "mine:OneTooMany")
    assert ran.returncode == 1
    for text in (
        '"A cache MUST raise offset by exactly S',
        "expected  4",
        "observed  5",
        "from mine import OneTooMany",
        "assert cache.offset == 4",
        "DOES NOT CONFORM",
    ):
        assert text in ran.stdout, text
    assert "Traceback" not in ran.stdout
    assert "conformance/plugin.py" not in ran.stdout


def test_should_findings_do_not_fail_unless_strict(project):
    ran = run(project, *QUICK, "--cache", "mine:Aliases")
    assert ran.returncode == 0
    assert "1 xfailed" in outcomes(ran)
    for option in ("--strict", "--conformance-strict"):
        ran = run(project, *QUICK, "--cache", "mine:Aliases", option)
        assert ran.returncode == 1, option
        assert "MASK-11 SHOULD" in ran.stdout


def test_a_projects_own_strict_setting_is_not_ours(project):
    (project / "pytest.ini").write_text("[pytest]\nstrict = true\nxfail_strict = true\n")
    ran = run(project, *QUICK, "--cache", "mine:Aliases")
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("mine.Mine", "has no colon"),
        ("mine:Yours", "It has KVCache, OffsetCache, Aliases"),
        ("nothing:X", "no module 'nothing'"),
        ("json:JSONDecoder", "nothing can be inferred"),
    ],
)
def test_a_bad_target_is_a_usage_error(project, target, says):
    for more in ((), ("-n", "2")):
        ran = run(project, *QUICK, "--cache", target, *more)
        assert ran.returncode == 4, ran.stdout
        assert says in ran.stderr
        assert "Traceback" not in ran.stdout + ran.stderr


def verdicts(path):
    return {
        (subject["target"], result["clause"]): (result["verdict"], result["message"])
        for subject in json.loads(path.read_text())["subjects"]
        for result in subject["results"]
    }


def test_xdist_gives_the_same_verdicts(project):
    targets = ("--cache", "mine:OneTooMany", "--cache", "mine:Mine")
    for name, more in (("one.json", ()), ("two.json", ("-n", "2"))):
        run(project, *QUICK, *targets, "--conformance-json", name, *more)
    assert verdicts(project / "one.json") == verdicts(project / "two.json")
    assert json.loads((project / "two.json").read_text())["complete"] is True


def test_results_and_programs_are_written(project):
    ran = run(
        project,
        *QUICK,
        *("--cache", "mine:OneTooMany", "--conformance-json", "out/r.json"),
        *("--conformance-repro", "out/programs", "--junitxml", "junit.xml"),
    )
    data = json.loads((project / "out/r.json").read_text())
    assert data["spec_version"]
    assert data["complete"] is True
    (program,) = (project / "out/programs").glob("POS-2*.py")
    again = subprocess.run(
        [sys.executable, program], cwd=project, env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 1
    assert "AssertionError: 5" in again.stderr
    assert "POS-2" in (project / "junit.xml").read_text()
    assert ran.returncode == 1


def test_caches_named_in_pyproject(project):
    (project / "pyproject.toml").write_text(
        '[[tool.kvproto.cache]]\ntarget = "mine:OneTooMany"\nbatch_sizes = [1]\n'
        'expected_failures = { "POS-2" = "issue #7", "STATE-5" = "issue #8" }\n'
    )
    ran = run(project, *QUICK)
    assert "[[tool.kvproto.cache]] in pyproject.toml" in ran.stdout
    assert "1  (claimed)" in ran.stdout
    assert "STATE-5 unexpected pass" in ran.stdout
    assert ran.returncode == 1
    ran = run(project, "check", "--effort", "quick", module="kvproto")
    assert "STATE-5 unexpected pass" in ran.stdout
    assert ran.returncode == 1


def test_a_hostile_project_is_escaped_by_the_command(project):
    (project / "pytest.ini").write_text(
        "[pytest]\npython_files = check_*.py\nfilterwarnings = error\naddopts = -x\n"
    )
    (project / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(autouse=True)\ndef bad(): raise OSError('no')\n"
    )
    (project / "conformance").mkdir()
    (project / "conformance" / "__init__.py").write_text("")
    ran = run(project, "check", "mine:Mine", "--effort", "quick", module="kvproto")
    assert ran.returncode == 0, ran.stderr
    assert "CONFORMS" in ran.stdout


def test_inside_a_third_partys_own_tests(project):
    (project / "test_mine.py").write_text(
        "from conformance import check\nfrom mine import Mine\n\n"
        "def test_mine():\n    report = check(Mine, effort='quick')\n"
        "    assert report.conforms, report\n"
    )
    ran = run(project, "-q", "test_mine.py", "-p", "no:cacheprovider", PYTHONPATH=str(project))
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_without_autoload_the_plugin_is_named(project):
    arguments = (*QUICK, "--cache", "mine:Mine", "-k", "POS-1")
    ran = run(project, "-p", "_kvproto_pytest", *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "1 passed" in ran.stdout, ran.stderr
    ran = run(project, "-p", "_kvproto_pytest", *arguments)
    assert "1 passed" in ran.stdout, ran.stderr


def test_seeds_and_devices(project):
    ran = run(
        project,
        *QUICK,
        *("--cache", "mine:Mine", "--conformance-seed", "random"),
        *("--conformance-device", "cpu"),
    )
    assert ran.returncode == 0, ran.stdout
    assert ", seed " in ran.stdout
