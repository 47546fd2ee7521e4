"""Fixtures that fetch releases of other packages, as they were published."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def release(pytestconfig: pytest.Config) -> Callable[[str, str], Path]:
    """The unpacked files of a release, fetched once and kept in pytest's cache directory.

    The wheels are only read from or put on PYTHONPATH, never installed, so that releases do not
    meet. sglang's is built for one platform; the files taken from it are plain Python.
    """

    def fetch(name: str, version: str) -> Path:
        folder = pytestconfig.cache.mkdir("releases") / f"{name}-{version}"
        if not folder.is_dir():
            wheels = pytestconfig.cache.mkdir("wheels") / str(os.getpid())
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q"]
            command += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
            for platform in ("any", "manylinux_2_34_x86_64"):
                command += ["--platform", platform]
            ran = subprocess.run(
                [*command, "-d", str(wheels), f"{name}=={version}"],
                capture_output=True,
                text=True,
                check=False,
            )
            found = list(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
            if not found:
                pytest.skip(f"{name} {version} cannot be fetched here: {ran.stderr.strip()[-200:]}")
            # Several processes may be here at once: each unpacks for itself, the first one wins.
            own = folder.with_name(f"{folder.name}.{os.getpid()}")
            with zipfile.ZipFile(found[0]) as wheel:
                wheel.extractall(own, [n for n in wheel.namelist() if n.endswith(".py")])
            with contextlib.suppress(OSError):
                own.rename(folder)
        return folder

    return fetch
