"""Candidates: what a run is to judge, each by itself.

A target that is none (no such module, no such class) ends the run before anything is judged. What
the code of a cache does is a verdict on that cache, and the others are judged all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.config import Options
from conformance.engine import Session
from conformance.subject import Named, Subject, examine
from conformance.target import CannotBeTested
from conformance.verdict import Report


@dataclass(frozen=True)
class Candidate:
    """A cache that a run is to judge, or the reason why it cannot be."""

    target: str
    subject: Subject | None = None
    unusable: str = ""

    def session(self, options: Options) -> Session:
        assert self.subject is not None, self.unusable
        return Session(
            self.subject, effort=options.effort, seed=options.seed, strict=options.strict
        )

    def unusable_report(self, options: Options) -> Report:
        """The report on a cache that cannot be tested."""
        return Report(
            target=self.target,
            class_name="",
            contracts=(),
            visibility="",
            claims=(),
            notes=(),
            results=[],
            effort=options.effort,
            strict=options.strict,
            unusable=self.unusable,
        )


def candidates(caches: Sequence[Named]) -> list[Candidate]:
    """Every cache that was named, made and read once.

    Raises:
        TargetError: one target is none, or none of the caches can be tested.
    """
    found: list[Candidate] = []
    for named in caches:
        try:
            subjects = named.subjects()
        except CannotBeTested as error:
            found.append(Candidate(named.target, unusable=str(error)))
            continue
        for subject in subjects:
            try:
                examine(subject)
                found.append(Candidate(subject.target, subject))
            except CannotBeTested as error:
                found.append(Candidate(subject.target, unusable=str(error)))
    if all(candidate.unusable for candidate in found):
        raise CannotBeTested("\n".join(candidate.unusable for candidate in found))
    return found
