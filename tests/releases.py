"""Known faults on the release that had them and on the one that fixed them::

    python -m tests.releases [ROW ...] [--cache DIR] [--markdown FILE]

Each release is fetched once, unpacked into a folder of its own and put first on the path of the
process that judges it. A fault must show under its clause, with its message, on the one release
and be gone from the other; the rest of a clause may still fail there for another reason.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.fetch import fetch
from tests.judging import MLX_LM, run_check

ROOT = Path(__file__).parents[1]
WINDOW = f"{MLX_LM}:RotatingKVCache(max_size=8)"


@dataclass(frozen=True)
class Row:
    """A fault between two releases of a package."""

    id: str
    source: str
    target: str
    clause: str
    says: str
    buggy: str
    fixed: str
    package: str = "mlx-lm"


ROWS = (
    Row("A03", "ml-explore/mlx-lm#487", WINDOW, "MASK-2", "does not fit", "0.28.0", "0.28.1"),
    Row("A04", "ml-explore/mlx-lm#843", f"{MLX_LM}:KVCache()", "MASK-6", "window(1)", "0.30.5",
        "0.30.6"),
    Row("A04b", "ml-explore/mlx-lm#843", f"{MLX_LM}:KVCache()", "MASK-4", "window(1)", "0.30.5",
        "0.30.6"),
    Row("A11", "ml-explore/mlx-lm#886", f"{MLX_LM}:CacheList()", "COMP-2", "from_state", "0.30.7",
        "0.31.0"),
    Row("A23", "ml-explore/mlx-lm#1165", f"{MLX_LM}:QuantizedKVCache(group_size=32, bits=8)",
        "MEAS-3", "NameError", "0.31.2", "0.31.3"),
    Row("A29", "ml-explore/mlx-lm#1072", f"{MLX_LM}:KVCache()", "BATCH-3", "merge(members)",
        "0.31.1", "0.31.2"),
    Row("A29b", "ml-explore/mlx-lm#1072", f"{MLX_LM}:KVCache()", "BATCH-7", "merge([cache])",
        "0.31.1", "0.31.2"),
    Row("A31", "ml-explore/mlx-lm#738", WINDOW, "BATCH-1", "merge(members)", "0.31.1", "0.31.2"),
    Row("A33", "ml-explore/mlx-lm#1093", WINDOW, "BATCH-8", "merge(members)", "0.31.1", "0.31.2"),
)  # fmt: skip


def judged(row: Row, version: str, cache: Path) -> str | None:
    """The message of the clause where it fails on this release, or None."""
    path = fetch(row.package, version, cache)
    with tempfile.TemporaryDirectory() as folder:
        subject, _ = run_check(row.target, Path(folder), "--clause", row.clause, path=path)
    result = next(one for one in subject["results"] if one["clause"] == row.clause)
    return str(result["message"]) if result["verdict"] == "fail" else None


def verdict(row: Row, cache: Path) -> str:
    """What is wrong with a row of the table; nothing if it holds."""
    before = judged(row, row.buggy, cache)
    if before is None or row.says not in before:
        return f"not found on {row.buggy}: {before}"
    after = judged(row, row.fixed, cache)
    if after is not None and row.says in after:
        return f"still found on {row.fixed}: {after}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--cache", type=Path, default=ROOT / ".pytest_cache" / "releases")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    chosen = [row for row in ROWS if not options.rows or row.id in options.rows]
    console = Console(highlight=False)
    table = Table("row", "clause", "class", "has it", "fixed in", "", box=None)
    lines = ["| issue | clause | class | has it | fixed in | |", "|---|---|---|---|---|---|"]
    wrong = 0
    for row in track(chosen, "releases", console=Console(stderr=True), transient=True):
        says = verdict(row, options.cache)
        wrong += bool(says)
        name = row.target.partition(":")[2].partition("(")[0]
        cells = (row.clause, name, row.buggy, row.fixed, says or "holds")
        table.add_row(row.id, *cells)
        lines.append(f"| {row.source} | {' | '.join(cells)} |")
    console.print(table)
    console.print(f"{len(chosen) - wrong} of {len(chosen)} faults found and gone as known")
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
