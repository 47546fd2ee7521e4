"""The pytest plugin: ``pytest --pyargs conformance --cache mypkg.caches:MyCache``.

Every pytest run in the environment loads it, so it imports pytest only (it stands outside the
packages, whose ``__init__`` would be run first), and the suite when a run collects it. The name of
its entry point is this module's, so that ``-p _kvproto_pytest`` (needed with
PYTEST_DISABLE_PLUGIN_AUTOLOAD) is harmless otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.plugin import Suite

EFFORTS = ("quick", "default", "deep")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of KV caches (kvproto)")
    group.addoption(
        "--cache",
        action="append",
        dest="kv_cache",
        default=[],
        metavar="TARGET",
        help="cache to test with --pyargs conformance: package.module:Name, "
        "package.module:Name(8, keep=2) or path/to/file.py:Name; may be given several times",
    )
    group.addoption(
        "--conformance-effort",
        choices=EFFORTS,
        default="default",
        help="how many traces each property tries",
    )
    group.addoption(
        "--conformance-json", metavar="FILE", default=None, help="write the results to a file"
    )
    group.addoption(
        "--conformance-repro",
        metavar="DIR",
        default=None,
        help="write each counterexample as a Python program",
    )
    group.addoption(
        "--conformance-strict",
        action="store_true",
        help="SHOULD clauses decide, too (so does pytest's own --strict)",
    )
    group.addoption(
        "--conformance-device", choices=("cpu", "gpu"), default=None, help="MLX's default device"
    )
    group.addoption(
        "--conformance-timeout",
        metavar="SECONDS",
        type=float,
        default=None,
        help="how long a cache may take for one example before it counts as hanging (30)",
    )
    group.addoption(
        "--conformance-seed",
        metavar="SEED",
        default="",
        help="another seed than the one that verdicts use, for exploring",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "clause(id): the clause of the kvproto spec that a test checks"
    )
    if config.getoption("kv_cache") and not hasattr(config, "workerinput"):
        suite_of(config)  # a bad target ends the run here, with its message and nothing else


def suite_of(config: pytest.Config) -> Suite:
    """The suite of this run, made on first use.

    Raises:
        pytest.UsageError: an option or a target cannot be used.
    """
    found: Any = getattr(config, "_kvproto_suite", None)
    if found is None:
        from conformance.plugin import Suite

        found = Suite(config)
        config._kvproto_suite = found  # type: ignore[attr-defined]
        config.pluginmanager.register(found, "kvproto-suite")
    return found  # type: ignore[no-any-return]
