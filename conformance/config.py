"""What a run is given: options, and the caches that a project names in its pyproject.toml."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from conformance import limits
from conformance.engine import EXAMPLES, fresh_seed
from conformance.subject import Named
from conformance.target import TargetError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

REFERENCE = (
    "reference_impl:OffsetCache(5)",
    "reference_impl:KVCache()",
    "reference_impl:SlidingWindowKVCache(8)",
    "reference_impl:SlidingWindowKVCache(8, sinks=2)",
    "reference_impl:ChunkedKVCache(8)",
    "reference_impl:QuantizedKVCache(32, 8)",
    "reference_impl:RotatedKVCache()",
    "reference_impl:BatchKVCache([1, 0])",
    "reference_impl:BatchSlidingWindowKVCache(8, [1, 0])",
    "reference_impl:RecurrentCache(2)",
    "reference_impl:CompositeCache()",
    "reference_impl:PromptFiles()",
    "reference_impl:PromptStore()",
    "reference_impl:KVPool(24, 2, 3, 8, 12)",
    "reference_impl:SnapshotStore()",
    "reference_impl:CacheLayout([0, 1, 2, 3], ['attn', None, 'attn', 'attn'], {0: 8})",
)
"""The default subjects, named as a user would."""

_KEYS = {"target", "expected_failures"}


@dataclass(frozen=True)
class Options:
    """How to run."""

    effort: str = "default"
    seed: str = ""
    strict: bool = False
    json: Path | None = None
    repro: Path | None = None

    @classmethod
    def of(
        cls,
        *,
        device: str | None = None,
        seed: str = "",
        timeout: float | None = None,
        **options: Any,
    ) -> Options:
        """Options with ``seed="random"`` drawn, the device and the time limit set.

        Raises:
            TargetError: an option has no such value.
        """
        if options.get("effort", "default") not in EXAMPLES:
            raise TargetError(f"effort is one of {', '.join(EXAMPLES)}, not {options['effort']!r}.")
        if device is not None:
            mx.set_default_device(mx.Device(getattr(mx, device)))
        if timeout is not None:
            if timeout <= 0:
                raise TargetError(f"timeout is a number of seconds above 0, not {timeout:g}.")
            limits.SECONDS = timeout
        return cls(seed=fresh_seed() if seed == "random" else seed, **options)


def default_caches() -> list[Named]:
    """The reference implementations."""
    return [Named(text, Path.cwd()) for text in REFERENCE]


def configured_caches(directory: Path) -> list[Named]:
    """The caches of ``[[tool.kvproto.cache]]`` in the nearest pyproject.toml, if any.

    Each table has a ``target``, optional claims by name, and optional
    ``expected_failures = {"UPD-8" = "reason, with a link"}``.

    Raises:
        TargetError: a table is not of that form.
    """
    for folder in (directory, *directory.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            break
    else:
        return []
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{path.name} is not TOML: {error}") from None
    tables = data.get("tool", {}).get("kvproto", {}).get("cache", [])
    if not isinstance(tables, list):
        raise TargetError(f"{path.name}: write [[tool.kvproto.cache]], with two brackets.")
    caches = []
    for table in tables:
        if not isinstance(table.get("target"), str):
            raise TargetError(f"{path.name}: a [[tool.kvproto.cache]] has no target.")
        claims = {key: value for key, value in table.items() if key not in _KEYS}
        expected = table.get("expected_failures", {})
        caches.append(Named(table["target"], folder, claims, expected))
    return caches
