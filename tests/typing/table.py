"""The table of (class, protocol, verdict): what mypy is expected to say of known caches.

    python -m tests.typing.table [--python-version X.Y]

prints where the verdicts differ from the table, and with ``--write`` writes them. A cell is
``ok``; ``missing``, where the class lacks a member; ``conflict``, where one has another type; or
two of them, where ``--check-untyped-defs`` changes the verdict.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance.target import parse
from conformance.typecheck.judge import Judged, judge
from conformance.typecheck.protocols import ALL

FOLDER = Path(__file__).parent / "tables"

MLX_LM = "mlx_lm.models.cache"
SGLANG = "sglang/srt/hardware_backend/mlx/kv_cache/attention_kv_cache.py"
MLX_VLM = "mlx_vlm/models/cache.py"

CLASSES = {
    "reference_impl": (
        *("KVCache", "SlidingWindowKVCache", "ChunkedKVCache", "QuantizedKVCache", "BatchKVCache"),
        *("BatchSlidingWindowKVCache", "RecurrentCache", "CompositeCache", "OffsetCache"),
    ),
    "mlx_lm-0.32.2": (
        *("KVCache", "RotatingKVCache", "QuantizedKVCache", "ConcatenateKVCache"),
        *("ChunkedKVCache", "ArraysCache", "CacheList", "BatchKVCache", "BatchRotatingKVCache"),
    ),
    "sglang-0.5.23": (
        *("AttentionOffsetCache", "ContiguousAttentionKVCache", "WindowedAttentionKVCache"),
        "PoolBackedAttentionKVCache",
    ),
    "mlx_vlm-0.6.15": (
        *("KVCache", "RotatingKVCache", "QuantizedKVCache", "ConcatenateKVCache"),
        *("ChunkedKVCache", "ArraysCache", "CacheList", "BatchKVCache", "BatchRotatingKVCache"),
        *("BufferedRotatingKVCache", "BatchQuantizedKVCache", "PoolingCache"),
        *("BatchPoolingCache", "SimpleKVCache", "StaticPrefixKVCache"),
    ),
}
"""The classes of each table."""

WORDS = {"satisfied": "ok", "missing member": "missing", "conflicting member": "conflict"}


def targets(name: str, root: Path | None = None) -> list[str]:
    """The targets of a table; ``root`` is the folder of the release, where it is not installed."""
    module = {"sglang-0.5.23": SGLANG, "mlx_vlm-0.6.15": MLX_VLM, "mlx_lm-0.32.2": MLX_LM}.get(
        name, name
    )
    start = f"{root}/" if root else ""
    return [f"{start}{module}:{each}" for each in CLASSES[name]]


def verdicts(
    names: Iterable[str],
    roots: dict[str, Path],
    directory: Path,
    python_version: str | None = None,
) -> dict[str, list[Judged]]:
    """mypy's verdicts on all classes of some tables, in one run for each of its settings."""
    wanted = {name: targets(name, roots.get(name)) for name in names}
    parsed = [parse(text) for texts in wanted.values() for text in texts]
    judged = iter(judge(parsed, directory, python_version=python_version))
    return {name: [next(judged) for _ in texts] for name, texts in wanted.items()}


def cells(result: Judged) -> dict[str, str]:
    """The column of one class."""
    column = {verdict.protocol: WORDS[verdict.word] for verdict in result.verdicts}
    for verdict in result.differing:
        column[verdict.protocol] += f"/{WORDS[verdict.word]}"
    return column


def table(name: str, results: Sequence[Judged]) -> str:
    """The table as Markdown, one column a class."""
    columns = [cells(result) for result in results]
    lines = [f"# {name}", "", f"| protocol | {' | '.join(CLASSES[name])} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for one in ALL:
        row = " | ".join(column[one.annotation] for column in columns)
        lines.append(f"| `{one.annotation}` | {row} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.typing.table", description=__doc__)
    parser.add_argument("--python-version", metavar="X.Y")
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--root", action="append", default=[], metavar="TABLE=FOLDER", help="an unpacked release"
    )
    options = parser.parse_args()
    roots = {name: Path(folder) for name, _, folder in (r.partition("=") for r in options.root)}
    names = [name for name in CLASSES if name in roots or name[:6] not in ("sglang", "mlx_vl")]
    for name, results in verdicts(names, roots, Path.cwd(), options.python_version).items():
        text = table(name, results)
        path = FOLDER / f"{name}.md"
        if options.write:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{name}: {'as' if path.read_text() == text else 'NOT as'} expected")


if __name__ == "__main__":
    main()
