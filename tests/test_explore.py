"""Exploring: processes that share an example database do not find the same again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CACHE = """
from reference_impl import KVCache

class Seldom(KVCache):
    def update_and_fetch(self, keys, values, /):
        if keys.shape[2] == 5 and self.offset in (19, 23):
            keys = keys * 0
        return super().update_and_fetch(keys, values)
"""
PROFILES = """
import os
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

database = DirectoryBasedExampleDatabase(os.environ["EXAMPLES"])
settings.register_profile("long", max_examples=5000, database=database, derandomize=False)
settings.register_profile("replay", max_examples=1, database=database, derandomize=False)
"""


def explore(folder: Path, profile: str, database: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "conftest.py").write_text(PROFILES)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--rootdir", str(folder), "-p", "conftest", "--hypothesis-profile", profile),
            *("--pyargs", "conformance.explore", "--cache", "seldom:Seldom", "-k", "UPD-2]"),
        ],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(folder), str(folder.parent), *sys.path]),
            "EXAMPLES": str(database),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_one_process_finds_another_replays(tmp_path: Path) -> None:
    (tmp_path / "seldom.py").write_text(CACHE)
    shared, empty = tmp_path / "shared", tmp_path / "empty"
    found = explore(tmp_path / "one", "long", shared)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "UPD-2 MUST" in found.stdout
    replayed = explore(tmp_path / "two", "replay", shared)
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "UPD-2 MUST" in replayed.stdout
    alone = explore(tmp_path / "three", "replay", empty)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert "1 passed" in alone.stdout
