"""The matrix: result files joined into one HTML page that needs nothing else.

``kvproto report FILE.json... -o page.html``. The page works without scripts (every cell is a link
to what was found); a script adds the search, the filters, and opens a cell in a dialog.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.target import TargetError
from conformance.verdict import JSON_VERSION, Verdict
from kvproto.clause import REGISTRY, SPEC_VERSION, Clause, Contract, Level

TEMPLATE = Path(__file__).with_name("page.html.jinja")

RANKS = ("fail", "error", "hazard", "blocked", "pass", "skip", "none")
"""The kinds of cells, the gravest first. A hazard is a SHOULD that fails."""

NONE_APPLIES = "\N{EN DASH}"


@dataclass(frozen=True)
class Finding:
    """One clause of one cell."""

    clause: Clause
    rank: str
    data: Mapping[str, Any]
    """The result as the file has it."""


@dataclass(frozen=True)
class Cell:
    """What was found out about one contract, or one profile, of one subject."""

    anchor: str
    title: str
    rank: str
    label: str
    """A few characters for the matrix."""
    told: str
    """The same in words."""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class Row:
    """One subject of the matrix."""

    data: Mapping[str, Any]
    run: Mapping[str, Any]
    """The file that it comes from, less its subjects."""
    cells: Sequence[Cell]
    profiles: Sequence[Cell]

    @property
    def rank(self) -> str:
        """``pass``, ``fail`` or ``blocked`` (not every clause was run)."""
        if self.data.get("unusable") or any(cell.rank in ("fail", "error") for cell in self.cells):
            return "fail"
        return "pass" if self.data["conforms"] else "blocked"

    @property
    def verdict(self) -> str:
        if self.data.get("unusable"):
            return "cannot be tested"
        words = {"pass": "conforms", "fail": "does not conform", "blocked": "incomplete"}
        return words[self.rank]

    @property
    def versions(self) -> str:
        """What was run: the package, mlx and Python, and when."""
        run = self.run
        parts = [self.data["package"], f"mlx {run['mlx']}", f"Python {run['python']}"]
        parts += [run["platform"], run["date"], f"effort {self.data['effort']}"]
        return ", ".join(part for part in parts if part)


def load(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Read result files.

    Raises:
        TargetError: a file is none, or was written for another version of the format or the spec.
    """
    files = []
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TargetError(f"{path}: cannot be read ({error.strerror}).") from None
        except ValueError as error:
            raise TargetError(f"{path} is not JSON: {error}.") from None
        if not isinstance(data, dict) or "subjects" not in data:
            raise TargetError(
                f"{path} is no result file; `kvproto check TARGET --json {path}` writes one."
            )
        if data.get("format") != JSON_VERSION:
            raise TargetError(
                f"{path} has format {data.get('format')!r}; this version reads {JSON_VERSION}."
            )
        results = [one for subject in data["subjects"] for one in subject["results"]]
        unknown = sorted({one["clause"] for one in results} - set(REGISTRY))
        if unknown:
            raise TargetError(
                f"{path} has clauses that kvproto {SPEC_VERSION} has not ({', '.join(unknown)}): "
                f"it was written for {data['spec_version']}. Run the suite again."
            )
        files.append(data)
    return files


def rows(files: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each subject of the files, in their order."""
    names = sorted({n for file in files for s in file["subjects"] for n in s.get("profiles", {})})
    found: list[Row] = []
    for file in files:
        run = {key: value for key, value in file.items() if key != "subjects"}
        for subject in file["subjects"]:
            number = len(found) + 1
            cells = [_cell(subject, contract, number) for contract in REGISTRY.contracts]
            profiles = [_profile(subject, name, number) for name in names]
            found.append(Row(subject, run, cells, profiles))
    return found


def _rank(result: Mapping[str, Any]) -> str:
    verdict = Verdict(result["verdict"])
    if verdict is Verdict.FAIL:
        return "fail" if REGISTRY[result["clause"]].level is Level.MUST else "hazard"
    if verdict in (Verdict.ERROR, Verdict.UNEXPECTED_PASS):
        return "error"
    if verdict is Verdict.EXPECTED_FAILURE:
        return "hazard"
    return {Verdict.PASS: "pass", Verdict.SKIP: "skip"}.get(verdict, "blocked")


def _gravest(ranks: Iterable[str]) -> str:
    return min(ranks, key=RANKS.index, default="none")


_WORDS = {
    "fail": ("MUST fails", "MUST fail"),
    "error": ("error of the suite or unexpected pass", "errors of the suite or unexpected passes"),
    "hazard": ("SHOULD or expected failure", "SHOULD or expected failures"),
    "blocked": ("not judged", "not judged"),
    "pass": ("passes", "pass"),
    "skip": ("does not apply", "do not apply"),
}


def _cell(subject: Mapping[str, Any], contract: Contract, number: int) -> Cell:
    findings = [
        Finding(REGISTRY[one["clause"]], _rank(one), one)
        for one in subject["results"]
        if REGISTRY.contract_of(one["clause"]) is contract
    ]
    findings.sort(key=lambda finding: RANKS.index(finding.rank))
    counts = Counter(finding.rank for finding in findings)
    rank = _gravest(counts)
    labels = {"pass": "✓", "skip": NONE_APPLIES, "none": ""}
    signs = {"fail": "✗", "error": "!", "hazard": "~", "blocked": "?"}
    label = labels.get(rank, f"{signs.get(rank, '')}{counts[rank]}")
    told = ", ".join(
        f"{counts[rank]} {_WORDS[rank][counts[rank] > 1]}" for rank in RANKS if counts[rank]
    )
    anchor = f"s{number}-{contract.name}"
    return Cell(anchor, contract.title, rank, label, told or "not run", findings)


def _profile(subject: Mapping[str, Any], name: str, number: int) -> Cell:
    anchor = f"s{number}-profile-{name}"
    data = subject.get("profiles", {}).get(name)
    if data is None:
        return Cell(anchor, name, "none", "", "not judged")
    blocking = [clause for clause in data.get("blocking", ()) if clause in REGISTRY]
    by_clause = {one["clause"]: one for one in subject["results"]}
    findings = [
        Finding(REGISTRY[clause], _rank(by_clause[clause]), by_clause[clause])
        for clause in blocking
        if clause in by_clause
    ]
    ranks = {"yes": "pass", "pass": "pass", "no": "fail", "fail": "fail"}
    verdict = str(data["verdict"])
    rank = ranks.get(verdict, "skip")
    told = " ".join([verdict, *([f"({', '.join(blocking)})"] if blocking else [])])
    return Cell(
        anchor, name, rank, {"pass": "✓", "fail": "✗"}.get(rank, NONE_APPLIES), told, findings
    )


def render(files: Sequence[Mapping[str, Any]], *, title: str = "KV caches") -> str:
    """The page.

    Raises:
        TargetError: Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise TargetError(
            "the page needs Jinja2: pip install 'mlx-kvproto[report]' (or jinja2)."
        ) from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    found = rows(files)
    return template.render(
        title=title,
        spec_version=SPEC_VERSION,
        contracts=REGISTRY.contracts,
        profiles=[cell.title for cell in found[0].profiles] if found else [],
        rows=found,
        issue=lambda fault: "https://github.com/" + fault.replace("#", "/issues/"),
    )


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="join result files into one HTML page",
        description="Join the files that `kvproto check --json FILE` and `pytest "
        "--conformance-json FILE` write into a matrix of caches and contracts. The page is one "
        "file, and needs no server and no network.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="PAGE")
    parser.add_argument("--title", default="KV caches", help="the heading of the page")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page of a command line."""
    text = render(load(options.files), title=options.title)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(f"wrote {options.output}")
    return 0
