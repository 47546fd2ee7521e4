"""Verdicts: what was found out about each clause, and the report that holds them."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from importlib.metadata import packages_distributions, version
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from conformance.traits import Traits
from kvproto.clause import REGISTRY, SPEC_VERSION, Level

if TYPE_CHECKING:
    from conformance.profiles import Judgement

JSON_VERSION = 1


class Verdict(str, Enum):
    """The outcome of one clause for one subject."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    """Does not apply; the message says why."""
    EXPECTED_FAILURE = "expected failure"
    UNEXPECTED_PASS = "unexpected pass"
    """Listed as an expected failure, and passes: counts as a failure."""
    BLOCKED = "blocked"
    """What it builds on failed; the message names it."""
    ERROR = "error"
    """The suite went wrong, not the cache."""
    NOT_RUN = "not run"

    def __str__(self) -> str:
        return self.value


@dataclass
class Result:
    """The verdict on one clause."""

    clause: str
    verdict: Verdict
    message: str = ""
    expected: str = ""
    observed: str = ""
    program: str = ""
    trace: list[dict[str, Any]] = field(default_factory=list)
    test: str = ""
    examples: int = 0
    seconds: float = 0.0
    fatal: bool = False
    """The cache hung, took all memory or ended the interpreter: no other verdict is to be had, so
    it decides whatever the level of the clause."""

    @property
    def level(self) -> Level:
        return REGISTRY[self.clause].level

    def breaks(self, *, strict: bool) -> bool:
        """Whether this result decides against the cache."""
        if self.verdict is Verdict.FAIL:
            return self.level is Level.MUST or strict or self.fatal
        return self.verdict in (Verdict.ERROR, Verdict.UNEXPECTED_PASS)

    def to_json(self) -> dict[str, Any]:
        return {
            "clause": self.clause,
            "level": str(self.level),
            "verdict": str(self.verdict),
            "test": self.test,
            "message": self.message,
            "expected": self.expected,
            "observed": self.observed,
            "trace": self.trace,
            "program": self.program,
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "fatal": self.fatal,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        known["verdict"] = Verdict(data["verdict"])
        return cls(**known)


@dataclass
class Report:
    """Everything found out about one subject."""

    target: str
    class_name: str
    contracts: Sequence[str]
    visibility: str
    claims: Sequence[tuple[str, str, str]]
    """Name, value and source of each claim."""
    notes: Sequence[str]
    results: list[Result]
    effort: str
    strict: bool = False
    package: str = ""
    """The distribution that the class comes from, as ``mlx-lm 0.32.2``; empty if from none."""
    traits: Traits | None = None
    """What decides for the consumers' profiles, beside the results; None in older reports."""
    unusable: str = ""
    """Why the cache cannot be tested at all: it cannot be imported, made or read."""

    def __post_init__(self) -> None:
        order = list(REGISTRY)
        self.results = sorted(self.results, key=lambda result: order.index(result.clause))

    @property
    def complete(self) -> bool:
        """Whether every clause of the spec has a verdict."""
        ran = {result.clause for result in self.results if result.verdict is not Verdict.NOT_RUN}
        return set(REGISTRY) <= ran

    @property
    def conforms(self) -> bool:
        """Whether nothing decides against the cache and nothing was left out.

        SHOULD clauses count only if the report is strict.
        """
        return self.complete and not self.broken

    @property
    def broken(self) -> list[Result]:
        return [result for result in self.results if result.breaks(strict=self.strict)]

    @property
    def profiles(self) -> dict[str, Judgement]:
        """Whether each known consumer works with the cache, by the consumer's name."""
        from conformance.profiles import judge

        return judge(self)

    def __getitem__(self, clause: str) -> Result:
        for result in self.results:
            if result.clause == clause:
                return result
        raise KeyError(f"{clause} was not run for {self.target}")

    def counts(self) -> Counter[tuple[str, Verdict]]:
        """How many results there are by level and verdict."""
        return Counter((str(result.level), result.verdict) for result in self.results)

    def to_json(self) -> dict[str, Any]:
        profiles = {}
        if self.complete:  # of a run of chosen clauses hardly any could be judged
            judged = {name: found.to_json() for name, found in self.profiles.items()}
            profiles = {"profiles": judged}
        return {
            "target": self.target,
            "class": self.class_name,
            "package": self.package,
            "kinds": list(self.contracts),
            "visibility": self.visibility,
            "claims": [
                {"name": name, "value": value, "source": source}
                for name, value, source in self.claims
            ],
            "notes": list(self.notes),
            "effort": self.effort,
            "strict": self.strict,
            "complete": self.complete,
            "conforms": self.conforms,
            "traits": None if self.traits is None else self.traits.to_json(),
            **profiles,
            **({"unusable": self.unusable} if self.unusable else {}),
            "results": [result.to_json() for result in self.results],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], results: Sequence[Result]) -> Report:
        """A report with these results, the rest read back from what ``to_json`` gave."""
        return cls(
            target=data["target"],
            class_name=data["class"],
            contracts=data["kinds"],
            visibility=data["visibility"],
            claims=[(claim["name"], claim["value"], claim["source"]) for claim in data["claims"]],
            notes=data["notes"],
            results=list(results),
            effort=data["effort"],
            strict=data["strict"],
            package=data["package"],
            traits=Traits.from_json(data["traits"]) if data.get("traits") else None,
            unusable=data.get("unusable", ""),
        )

    def __str__(self) -> str:
        from conformance.report.terminal import render

        return render([self])


@cache
def package_of(class_name: str) -> str:
    """The distribution that a class comes from, as ``mlx-lm 0.32.2``; empty if from none."""
    found = packages_distributions().get(class_name.partition(".")[0], [])
    return f"{found[0]} {version(found[0])}" if found else ""


def reports_to_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The content of a ``--conformance-json`` file; ``report/schema.json`` describes it."""
    return {
        "format": JSON_VERSION,
        "spec_version": SPEC_VERSION,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "complete": bool(reports) and all(report.complete for report in reports),
        "python": platform.python_version(),
        "mlx": version("mlx"),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": str(mx.default_device()),
        "subjects": [report.to_json() for report in reports],
    }
