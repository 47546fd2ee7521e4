"""The table of (class, protocol, verdict): what mypy is expected to say of known caches.

    python -m tests.typing.table [--python-version X.Y]

prints where the verdicts differ from the table, and with ``--write`` writes them. A cell is
``ok``; ``missing``, where the class lacks a member; ``conflict``, where one has another type; or
two of them, where ``--check-untyped-defs`` changes the verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance.target import parse
from conformance.typecheck.judge import Judged, generate, judge, search_path
from conformance.typecheck.protocols import ALL
from tests.typing.checkers import OTHERS, ROOT

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


def satisfied(
    checker: str, names: Iterable[str], roots: dict[str, Path], python_version: str
) -> dict[str, dict[str, dict[str, bool]]]:
    """What another checker says: by table, protocol and class, whether it is satisfied."""
    wanted = {name: targets(name, roots.get(name)) for name in names}
    parsed = [parse(text) for texts in wanted.values() for text in texts]
    text, asked = generate(parsed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "typecheck_generated.py"
        path.write_text(text, encoding="utf-8")
        errors = OTHERS[checker]([path], python_version, tuple(search_path(parsed, ROOT)))
    questions = iter(asked)
    if not all((path, each.bogus) in errors for each in asked):
        raise RuntimeError(f"{checker} does not see the classes: it misses no missing member")
    result: dict[str, dict[str, dict[str, bool]]] = {}
    for name in wanted:
        result[name] = {one.annotation: {} for one in ALL}
        for each in CLASSES[name]:
            for protocol, line in next(questions).protocols.items():
                result[name][protocol][each] = (path, line) not in errors
    return result


def disagreements(
    checker: str, names: Sequence[str], roots: dict[str, Path], python_version: str
) -> list[str]:
    """Where another checker does not say what the tables say of mypy by default."""
    said = []
    for name, protocols in satisfied(checker, names, roots, python_version).items():
        for protocol, mypy in read(name).items():
            for verdict in (True, False):
                differing = [
                    each
                    for each, word in mypy.items()
                    if protocols[protocol][each] is verdict and word.startswith("ok") is not verdict
                ]
                if differing:
                    word = "accepts" if verdict else "rejects"
                    said.append(f"{checker} {word} {name}, {protocol}: {', '.join(differing)}")
    return said


def read(name: str) -> dict[str, dict[str, str]]:
    """The cells of a table by protocol and class."""
    rows = (FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()[4:]
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    return {first.strip("`"): dict(zip(CLASSES[name], rest, strict=True)) for first, *rest in cells}


OTHERS_PAGE = FOLDER / "others.md"


def others_page(rows: Sequence[str]) -> str:
    """What :func:`disagreements` found, as a page."""
    lines = [
        "# Where other checkers do not say what mypy says by default",
        "",
        "docs/typing.md gives the reasons. `python -m tests.typing --write` writes this page.",
        "",
        *(f"- {row}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def unrecorded(checker: str, names: Sequence[str], rows: Sequence[str]) -> list[str]:
    """How the disagreements of a checker differ from those on the page."""
    page = OTHERS_PAGE.read_text(encoding="utf-8").splitlines()
    known = [
        line[2:]
        for line in page
        if line.startswith(f"- {checker} ") and any(f" {name}, " in line for name in names)
    ]
    return [f"not recorded: {row}" for row in rows if row not in known] + [
        f"no longer: {row}" for row in known if row not in rows
    ]


def given(texts: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """The folders of ``TABLE=FOLDER`` arguments, and the tables that can be made with them."""
    roots = {name: Path(folder) for name, _, folder in (text.partition("=") for text in texts)}
    installed = ["reference_impl"]
    with contextlib.suppress(PackageNotFoundError):
        installed.append(f"mlx_lm-{version('mlx-lm')}")
    return roots, [name for name in CLASSES if name in roots or name in installed]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.typing.table", description=__doc__)
    parser.add_argument("--python-version", metavar="X.Y")
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--root", action="append", default=[], metavar="TABLE=FOLDER", help="an unpacked release"
    )
    options = parser.parse_args()
    roots, names = given(options.root)
    for name, results in verdicts(names, roots, Path.cwd(), options.python_version).items():
        text = table(name, results)
        path = FOLDER / f"{name}.md"
        if options.write:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{name}: {'as' if path.read_text() == text else 'NOT as'} expected")


if __name__ == "__main__":
    main()
