"""No false alarms: known-good caches over many seeds, where no MUST may fail::

    python -m tests.soak [NAME ...] [--seeds 100] [--first 0] [--effort deep] [--jobs 2]

The caches are the reference implementations, other people's within their known faults
(known_faults.py), and the releases that fixed a fault (releases.py). Every judged pair of cache
and seed is written to a file at once, so an ended run goes on where it was; a pair judged by
other code does not count. A known fault that some seed does not find is listed, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from conformance.config import REFERENCE
from tests import releases
from tests.fetch import CannotFetch, fetch
from tests.judging import MLX_LM, SGLANG, run_check
from tests.known_faults import MUSTS

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Subject:
    """A cache, and the MUSTs that fail on it for a known reason."""

    name: str
    target: str
    musts: frozenset[str] = frozenset()
    package: str = ""
    version: str = ""
    clause: str = ""
    """The only clause that is judged: other faults of an old release are not in any table."""
    says: str = ""
    """What the clause said before the fault was fixed; other messages are no alarm."""


SUBJECTS = (
    *(Subject(target.partition(":")[2], target) for target in REFERENCE),
    *(
        Subject(f"mlx-lm {call}", f"{MLX_LM}:{call}", frozenset(musts))
        for call, musts in MUSTS.items()
    ),
    *(
        Subject(f"sglang {call}", f"{SGLANG}:{call}", frozenset(musts), "sglang", "0.5.23")
        for call, musts in {
            "AttentionOffsetCache()": (),
            "ContiguousAttentionKVCache()": ("UPD-5", "DEC-1", "DEC-3"),
            "WindowedAttentionKVCache(8)": ("UPD-5", "DEC-3"),
        }.items()
    ),
    *(
        Subject(
            f"{row.package} {row.fixed} {row.id}", row.target, frozenset(), row.package,
            row.fixed, row.clause, row.says,
        )
        for row in releases.ROWS
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one seed found on one cache."""

    alarms: tuple[str, ...]
    """A line for each MUST that fails and is not known, or error of the suite."""
    missed: tuple[str, ...]
    """Known faults that it did not find."""


def judge(subject: Subject, seed: int, effort: str, folder: Path) -> Outcome:
    """Run the suite on a cache, in a process of its own.

    Raises:
        CannotFetch: its release is out of reach.
    """
    path = fetch(subject.package, subject.version, folder) if subject.package else None
    arguments = ["--seed", str(seed), "--effort", effort]
    if subject.clause:
        arguments += ["--clause", subject.clause]
    files = subject.target.partition(":")[0].endswith(".py")
    with tempfile.TemporaryDirectory() as scratch:
        found, _ = run_check(
            subject.target,
            Path(scratch),
            *arguments,
            path=None if files else path,
            directory=path if files else None,
        )
    return outcome(subject, found["results"])


def outcome(subject: Subject, results: Sequence[dict[str, Any]]) -> Outcome:
    """The alarms among the results of a run."""
    alarms = []
    failed = set()
    for result in results:
        wrong = result["verdict"] == "fail" and (result["level"] == "MUST" or result["fatal"])
        failed |= {result["clause"]} if wrong else set()
        known = result["clause"] in subject.musts or subject.says not in result["message"]
        if result["verdict"] == "error" or (wrong and not known):
            alarms.append(f"{result['clause']}: {result['message']}")
    blocked = {result["clause"] for result in results if result["verdict"] == "blocked"}
    return Outcome(tuple(alarms), tuple(sorted(subject.musts - failed - blocked)))


def code() -> str:
    """A digest of the suite and of the caches that it judges."""
    digest = hashlib.sha256()
    for package in ("kvproto", "conformance", "reference_impl"):
        for file in sorted((ROOT / package).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def run(
    subjects: Sequence[Subject], seeds: Sequence[int], effort: str, folder: Path, jobs: int = 1
) -> dict[str, dict[int, Outcome]]:
    """What every seed found on every cache, those of an earlier run not judged again."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "soak.jsonl"
    mark = {"code": code(), "effort": effort}
    found: dict[str, dict[int, Outcome]] = {subject.name: {} for subject in subjects}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        known = json.loads(line)
        if known["name"] in found and known["seed"] in seeds and mark.items() <= known.items():
            one = Outcome(tuple(known["alarms"]), tuple(known["missed"]))
            found[known["name"]][known["seed"]] = one
    todo = [(each, seed) for seed in seeds for each in subjects if seed not in found[each.name]]
    with ThreadPoolExecutor(jobs) as pool, file.open("a", encoding="utf-8") as kept:
        running = {pool.submit(judge, *pair, effort, folder): pair for pair in todo}
        done = as_completed(running)
        for future in track(done, "soak", len(todo), console=Console(stderr=True)):
            subject, seed = running[future]
            try:
                one = future.result()
            except CannotFetch as error:
                Console(stderr=True).print(f"{subject.name} is left out: {error}")
                continue
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            found[subject.name][seed] = one
            row = {"name": subject.name, "seed": seed, "alarms": one.alarms, "missed": one.missed}
            print(json.dumps(mark | row), file=kept, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only caches so named, in part")
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--effort", choices=("quick", "default", "deep"), default="deep")
    parser.add_argument("--jobs", type=int, default=1, help="how many caches at once (1)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".pytest_cache" / "releases")
    options = parser.parse_args()
    subjects = [
        each
        for each in SUBJECTS
        if not options.names or any(name in each.name for name in options.names)
    ]
    seeds = range(options.first, options.first + options.seeds)
    found = run(subjects, seeds, options.effort, options.folder, options.jobs)
    console = Console(highlight=False, soft_wrap=True)
    table = Table("cache", "seeds", "false alarms", "known faults not found", box=None)
    for name, outcomes in found.items():
        alarms = sum(bool(one.alarms) for one in outcomes.values())
        missed = sorted({clause for one in outcomes.values() for clause in one.missed})
        table.add_row(name, str(len(outcomes)), str(alarms), ", ".join(missed))
    console.print(table)
    runs = [one for outcomes in found.values() for one in outcomes.values()]
    for name, outcomes in found.items():
        for seed, one in sorted(outcomes.items()):
            for alarm in one.alarms:
                console.print(f"{name}, seed {seed}: {alarm}", markup=False)
    wrong = sum(bool(one.alarms) for one in runs)
    wanted = len(subjects) * len(seeds)
    console.print(f"false alarms: {wrong}/{len(runs)} at {options.effort} effort")
    if len(runs) < wanted:
        console.print(f"INCOMPLETE: {wanted - len(runs)} of {wanted} runs are missing")
    return int(wrong > 0 or len(runs) < wanted)


if __name__ == "__main__":
    sys.exit(main())
