"""Verdicts on classes that nobody here wrote, each found in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

MLX_LM = "mlx_lm.models.cache"
SGLANG = "sglang/srt/hardware_backend/mlx/kv_cache/attention_kv_cache.py"

needs_mlx_lm_032 = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="mlx-lm 0.32 needs Python 3.11"
)


def first_on_path(path: Path | None) -> dict[str, str]:
    """An environment in which a process looks there first for modules."""
    places = [*([str(path)] if path else []), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}


def run_check(
    target: str,
    folder: Path,
    *arguments: str,
    path: Path | None = None,
    directory: Path | None = None,
) -> tuple[dict[str, Any], int]:
    """The subject of the result file that `kvproto check` writes into a folder, and its status.

    Args:
        path: a release of another package, which the process sees first.
        directory: where the process runs; by default the folder.

    Raises:
        RuntimeError: it writes no results; with what it says instead.
    """
    out = folder / "results.json"
    command = "import sys; from conformance.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [
            *(sys.executable, "-c", command, "check", target, "--quiet"),
            "--json",
            str(out),
            *arguments,
        ],
        env=first_on_path(path),
        cwd=directory or folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if not out.is_file():
        raise RuntimeError(f"{target}: {ran.stderr}")
    (subject,) = json.loads(out.read_text())["subjects"]
    return subject, ran.returncode


def judge(
    target: str, folder: Path, *, path: Path | None = None, directory: Path | None = None
) -> list[dict[str, Any]]:
    """The results of a whole run, which must be one without an error of the suite."""
    subject, status = run_check(target, folder, path=path, directory=directory)
    assert subject["complete"]
    assert not [r for r in subject["results"] if r["verdict"] == "error"]
    assert (status == 0) is subject["conforms"]
    results: list[dict[str, Any]] = subject["results"]
    return results


def failures(results: Iterable[dict[str, Any]], level: str) -> set[str]:
    return {r["clause"] for r in results if r["verdict"] == "fail" and r["level"] == level}


def programs_reproduce(
    results: Iterable[dict[str, Any]],
    folder: Path,
    path: Path | None = None,
    directory: Path | None = None,
) -> None:
    """Every printed program fails by itself, with the suite out of reach."""
    for result in results:
        if result["verdict"] == "fail":
            program = folder / f"{result['clause']}.py"
            program.write_text(result["program"])
            assert "conformance" not in result["program"]
            ran = subprocess.run(
                [sys.executable, program],
                env=first_on_path(path),
                cwd=directory or folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 1, result["program"]
            assert "NameError" not in ran.stderr, ran.stderr
