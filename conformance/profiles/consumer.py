"""Consumers: what they need of a cache, and how a verdict follows from what was found out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from conformance.traits import Traits
from kvproto.clause import REGISTRY

if TYPE_CHECKING:
    from conformance.verdict import Report


class Answer(str, Enum):
    """Whether a consumer works with a cache. The worst one of all findings counts, in this
    order: no, not judged, degraded, yes."""

    YES = "yes"
    DEGRADED = "degraded"
    """It runs, and silently does less or costs more; the finding says what."""
    NOT_JUDGED = "not judged"
    """What it needs was not run, or what fails may be something that it never does."""
    NO = "no"

    def __str__(self) -> str:
        return self.value


_ORDER = list(Answer)


@dataclass(frozen=True)
class Need:
    """Clauses that a consumer relies on.

    Args:
        clauses: ids.
        function: what relies on them, by its name in the consumer.
        why: what it does with them, in a few words.
        lost: what it silently does without, where breaking one of them stops nothing.
        unsure: why breaking one of them need not reach this consumer; it is then not judged.
    """

    clauses: tuple[str, ...]
    function: str
    why: str
    lost: str = ""
    unsure: str = ""

    @property
    def answer(self) -> Answer:
        """What it comes to when one of the clauses fails."""
        if self.lost:
            return Answer.DEGRADED
        return Answer.NOT_JUDGED if self.unsure else Answer.NO


@dataclass(frozen=True)
class Member:
    """A member that a consumer calls.

    Args:
        name: of the member.
        function: what calls it.
        absent: what happens without it.
        degraded: whether that is silent, and the rest works.
        kinds: of which kinds of cache it is needed; of all if empty.
    """

    name: str
    function: str
    absent: str
    degraded: bool = False
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict that is not yes."""

    answer: Answer
    reason: str
    clause: str = ""


@dataclass(frozen=True)
class Judgement:
    """Whether a consumer works with a cache, and why not."""

    consumer: str
    findings: tuple[Finding, ...] = ()

    @property
    def answer(self) -> Answer:
        answers = [finding.answer for finding in self.findings]
        return max(answers, key=_ORDER.index, default=Answer.YES)

    @property
    def deciding(self) -> tuple[Finding, ...]:
        """The findings that the verdict rests on."""
        return tuple(finding for finding in self.findings if finding.answer is self.answer)

    @property
    def blocking(self) -> tuple[str, ...]:
        """The clauses that the verdict rests on."""
        return tuple(dict.fromkeys(f.clause for f in self.deciding if f.clause))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self.answer),
            "blocking": list(self.blocking),
            "reasons": [finding.reason for finding in self.deciding],
        }


@dataclass(frozen=True)
class Consumer:
    """One way of using caches that exists, and what it needs.

    Args:
        name: ``package:use``, as ``kvproto explain`` takes it.
        about: what it does, in one or two sentences.
        kinds: kinds of cache (:data:`conformance.traits.KINDS`) that it has a use for.
        needs, members: what it relies on.
        asks: further findings, from what the class says of itself and its name.
        issues: public issues, as ``owner/repository#number``.
    """

    name: str
    about: str
    kinds: tuple[str, ...]
    needs: tuple[Need, ...]
    members: tuple[Member, ...] = ()
    asks: Callable[[Traits, Report], Iterable[Finding]] | None = None
    issues: tuple[str, ...] = ()

    def judge(self, report: Report) -> Judgement:
        """Whether it works with the subject of a report."""
        traits = report.traits
        if traits is None:
            unread = Finding(Answer.NOT_JUDGED, "the report does not say what was read off it")
            return Judgement(self.name, (unread,))
        wrong = self._of_another_kind(traits)
        if wrong is not None:
            return Judgement(self.name, (wrong,))
        findings = [*self._absent(traits), *self._broken(report)]
        if self.asks is not None:
            findings.extend(self.asks(traits, report))
        return Judgement(self.name, tuple(findings))

    def _of_another_kind(self, traits: Traits) -> Finding | None:
        if traits.kind in self.kinds:
            return None
        if traits.kind == "composite":
            return Finding(Answer.NOT_JUDGED, "is a composite: it works if its children do")
        if traits.kind == "data-free":
            return Finding(Answer.NO, "holds no data: its update_and_fetch raises", "FREE-1")
        wanted = " or ".join(self.kinds)
        return Finding(Answer.NO, f"is no cache of the kind {wanted} ({traits.kind})")

    def _absent(self, traits: Traits) -> Iterable[Finding]:
        for member in self.members:
            if member.name in traits or (member.kinds and traits.kind not in member.kinds):
                continue
            answer = Answer.DEGRADED if member.degraded else Answer.NO
            yield Finding(answer, f"has no {member.name}: {member.absent}")

    def _broken(self, report: Report) -> Iterable[Finding]:
        from conformance.verdict import Verdict

        found = {result.clause: result for result in report.results}
        for need in self.needs:
            for clause in need.clauses:
                if clause not in REGISTRY:
                    continue
                result = found.get(clause)
                verdict = Verdict.NOT_RUN if result is None else result.verdict
                if verdict in (Verdict.PASS, Verdict.SKIP, Verdict.UNEXPECTED_PASS):
                    continue
                if verdict in (Verdict.FAIL, Verdict.EXPECTED_FAILURE):
                    told = need.lost or need.unsure or need.why
                    yield Finding(need.answer, f"{clause}: {told}", clause)
                else:
                    yield Finding(Answer.NOT_JUDGED, f"{clause}: {verdict}", clause)

    def relied_on(self) -> Sequence[str]:
        """The ids of all clauses that it relies on, in the order of the needs."""
        return list(dict.fromkeys(clause for need in self.needs for clause in need.clauses))
