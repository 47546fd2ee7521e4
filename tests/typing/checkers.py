"""Type checkers as commands, and the errors that they report by file and line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = Path(__file__).resolve().parent / "cases"

Errors = dict[tuple[Path, int], set[str]]
"""The codes of the errors on each line that has some."""


class NotInstalled(Exception):
    """The checker is not in this environment."""


def _command(name: str) -> list[str]:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is not installed here; run: pip install {name}")
    return [found]


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if ran.returncode not in (0, 1) or (not ran.stdout and ran.returncode):
        raise RuntimeError(f"{command[0]} stopped:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def mypy(paths: Sequence[Path], version: str) -> Errors:
    command = [*_command("mypy"), *map(str, paths), "--config-file=", "--python-version", version]
    command += ["--strict", "--warn-unreachable", "--follow-imports=silent", "--no-error-summary"]
    # The examples are signatures: their bodies return nothing.
    command += ["--disable-error-code=empty-body", "--no-pretty", "--show-absolute-path"]
    errors: Errors = defaultdict(set)
    for line in _run(command).splitlines():
        match = re.match(r"(.*?):(\d+): error: .*?(?:\[([\w-]+)\])?\Z", line)
        if match:
            errors[Path(match[1]), int(match[2])].add(match[3] or "")
    return errors


def pyright(paths: Sequence[Path], version: str, search: Sequence[Path] = (ROOT,)) -> Errors:
    command = [*_command("pyright"), "--outputjson", "--pythonpath", sys.executable]
    if search == (ROOT,):
        command += [*map(str, paths), "--pythonversion", version]
    else:  # only a configuration file, which leaves no place for paths, can say where to search
        folder = paths[0].parent
        settings = {
            "include": [path.name for path in paths],
            "extraPaths": [str(path) for path in search],
            "pythonVersion": version,
        }
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command += ["-p", str(folder)]
    output = _run(command)
    errors: Errors = defaultdict(set)
    for one in json.loads(output)["generalDiagnostics"]:
        if one["severity"] == "error":
            place = Path(one["file"]), one["range"]["start"]["line"] + 1
            errors[place].add(one.get("rule", ""))
    return errors


def ty(paths: Sequence[Path], version: str, search: Sequence[Path] = (ROOT,)) -> Errors:
    command = [*_command("ty"), "check", *map(str, paths), "--output-format", "concise"]
    command += ["--python", sys.executable, "--python-version", version, "--color", "never"]
    command += ["--ignore", "invalid-implicit-return-in-function-with-stub-body"]
    for folder in search:
        command += ["--extra-search-path", str(folder)]
    errors: Errors = defaultdict(set)
    for line in _run(command).splitlines():
        match = re.match(r"(.*?):(\d+):\d+: error\[([\w-]+)\]", line)
        if match:
            errors[(ROOT / match[1]).resolve(), int(match[2])].add(match[3])
    return errors


def pyrefly(paths: Sequence[Path], version: str, search: Sequence[Path] = (ROOT,)) -> Errors:
    command = [*_command("pyrefly"), "check", *map(str, paths), "--output-format", "json"]
    command += ["--python-interpreter-path", sys.executable, "--python-version", version]
    command += ["--ignore", "bad-return", "--preset", "default"]
    for folder in search:
        command += ["--search-path", str(folder)]
    errors: Errors = defaultdict(set)
    found: dict[str, Any] = json.loads(_run(command))
    for one in found["errors"]:
        if one.get("severity", "error") == "error":
            errors[(ROOT / one["path"]).resolve(), one["line"]].add(one["name"])
    return errors


OTHERS = {"pyright": pyright, "ty": ty, "pyrefly": pyrefly}
CHECKERS = {"mypy": mypy, **OTHERS}


def expected(checker: str, paths: Sequence[Path]) -> dict[tuple[Path, int], str]:
    """The errors that the comments of some files expect of a checker, with mypy's codes."""
    lines = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.search(r"# error\[([\w-]*)\](?:: ([\w ]+))?\Z", line)
            if match and (match[2] is None or checker in match[2].split()):
                lines[path, number] = match[1]
    return lines


def differences(checker: str, paths: Sequence[Path], version: str) -> list[str]:
    """Where a checker does not report what the comments expect of it."""
    found = CHECKERS[checker](paths, version)
    wanted = expected(checker, paths)
    said = []
    for path, number in sorted(found.keys() | wanted.keys()):
        codes = found.get((path, number), set())
        code = wanted.get((path, number))
        place = f"{checker} {version}: {path.name}:{number}"
        if code is None:
            said.append(f"{place}: an error that is not expected ({', '.join(sorted(codes))})")
        elif not codes:
            said.append(f"{place}: no error, expected one [{code}]")
        elif checker == "mypy" and codes != {code}:
            said.append(f"{place}: {', '.join(sorted(codes))}, expected {code}")
    return said
