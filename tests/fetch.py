"""Releases of other packages, as they were published.

The wheels are only read from or put on PYTHONPATH, never installed, so that releases do not meet.
sglang's is built for one platform; the files taken from it are plain Python.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


class CannotFetch(Exception):
    """The package index is out of reach, or has no such release."""


def fetch(name: str, version: str, cache: Path) -> Path:
    """The Python files of a release, kept in ``cache`` for the next time.

    Raises:
        CannotFetch: with what pip said.
    """
    folder = cache / f"{name}-{version}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q"]
        command += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
        for platform in ("any", "manylinux_2_34_x86_64"):
            command += ["--platform", platform]
        ran = subprocess.run(
            [*command, "-d", wheels, f"{name}=={version}"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = list(Path(wheels).glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        if not found:
            raise CannotFetch(
                f"{name} {version} cannot be fetched here: {ran.stderr.strip()[-200:]}"
            )
        # Several processes may be here at once: each unpacks for itself, the first one wins.
        own = folder.with_name(f"{folder.name}.{os.getpid()}")
        with zipfile.ZipFile(found[0]) as wheel:
            wheel.extractall(own, [n for n in wheel.namelist() if n.endswith(".py")])
        with contextlib.suppress(OSError):
            own.rename(folder)
    return folder
