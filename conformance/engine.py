"""The engine: runs the check of a clause against a subject and turns what happens into a verdict.

Verdicts are reproducible: Hypothesis is seeded by the clause id, has no database and no deadline.
"""

from __future__ import annotations

import random
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.strategies import SearchStrategy

from conformance.limits import Interrupted, OutOfLimits, limited, restart
from conformance.parts import Part, PartsRun, parts_of
from conformance.probe import restrict
from conformance.program import render as render_program
from conformance.strategies import Shape, traces
from conformance.subject import Profile, Subject, examine
from conformance.tags import Dims
from conformance.trace import EndOfTrace, Operation, Run, Runaway, Violation, default_dims
from conformance.traits import Traits
from conformance.verdict import Report, Result, Verdict, package_of
from kvproto.clause import REGISTRY, Level

T = TypeVar("T")

EXAMPLES = {"quick": 15, "default": 60, "deep": 500}
"""How many traces each property tries, by effort."""

SHRINK_SECONDS = 6.0
"""After this long, the smallest counterexample found so far is taken."""


class BlockedBy(Exception):
    """A check cannot go on because of another clause, whose id it names."""


class NotApplicable(Exception):
    """A check found out that its clause does not apply; says why."""


Skip = Callable[[Profile], "str | None"]
"""Says why a clause does not apply to a subject; None if it does."""


@dataclass(frozen=True)
class Check:
    """The test of one clause."""

    clause: str
    function: Callable[[Context], None]
    needs: tuple[str, ...]
    """MUST clauses that it builds on: if one of them fails, this one is blocked."""
    skip: Skip

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"


BLOCKING = frozenset({Verdict.FAIL, Verdict.BLOCKED, Verdict.ERROR, Verdict.EXPECTED_FAILURE})
"""Verdicts on a clause that say nothing can be built on it."""

CHECKS: dict[str, Check] = {}


def always(profile: Profile) -> str | None:
    return None


def check(
    clause: str, *, needs: Sequence[str] = (), skip: Skip = always
) -> Callable[[Callable[[Context], None]], Callable[[Context], None]]:
    """Register a function as the test of a clause.

    Raises:
        ValueError: the clause has a test already, or builds on something that is no MUST.
    """
    if clause in CHECKS:
        raise ValueError(f"Clause {clause} has a check already: {CHECKS[clause].name}")
    REGISTRY[clause]
    for need in needs:
        if REGISTRY[need].level is not Level.MUST:
            raise ValueError(f"{clause} builds on {need}, which is no MUST and never blocks")

    def register(function: Callable[[Context], None]) -> Callable[[Context], None]:
        CHECKS[clause] = Check(clause, function, tuple(needs), skip)
        return function

    return register


class Context:
    """What a check has to work with."""

    def __init__(self, session: Session, clause: str, examples: int, seed_text: str) -> None:
        self.session = session
        self.profile = session.profile
        self.clause = clause
        self.examples = examples
        self.tried = 0
        self._seed = zlib.crc32(f"{clause} {seed_text}".encode())

    def works(self, *clauses: str) -> bool:
        """Whether one of these clauses passes, so that traces may use what it is about."""
        return any(self.session.result(clause).verdict is Verdict.PASS for clause in clauses)

    def run(self, dims: Dims | None = None, *, masks: bool = True) -> Run:
        """A run on a fresh cache; without masks it only appends."""
        if self.session.parts:
            return PartsRun(self.profile, self.session.parts, dims, masks=masks)
        return Run(self.profile, dims, masks=masks)

    def dims(self, **changes: Any) -> Dims:
        return replace(default_dims(self.profile), **changes)

    def for_traces(
        self,
        shape: Shape,
        property: Callable[[Run, list[Operation]], None],
        *,
        dims: Dims | None = None,
        masks: bool = True,
        fraction: float = 1.0,
    ) -> None:
        """Try a property on many traces; each call gets a fresh run."""
        dtype = (dims or default_dims(self.profile)).dtype

        def test(operations: list[Operation]) -> None:
            property(self.run(dims, masks=masks), operations)

        self.for_all(traces(self.profile, shape, dtype), test, fraction=fraction)

    def for_all(
        self, strategy: SearchStrategy[T], property: Callable[[T], None], *, fraction: float = 1.0
    ) -> None:
        """Try a property on drawn values; raises the violation of the smallest one that breaks it.

        Shrinking stops at :data:`SHRINK_SECONDS`: from then on only the smallest failing value
        so far fails, so Hypothesis ends with that one.
        """
        smallest: list[tuple[str, Violation]] = []
        started = 0.0

        def test(value: T) -> None:
            nonlocal started
            if smallest:
                runaway = isinstance(smallest[0][1], Runaway)
                if runaway or time.monotonic() - started > SHRINK_SECONDS:
                    if repr(value) != smallest[0][0]:
                        return
                    if runaway:  # it is not tried twice
                        raise smallest[0][1]
            self.tried += 1
            restart()
            try:
                property(value)
            except EndOfTrace:
                return
            except Violation as violation:
                if not smallest:
                    started = time.monotonic()
                smallest[:] = [(repr(value), violation)]
                raise

        configured = settings(
            max_examples=max(1, int(self.examples * fraction)),
            database=None,
            deadline=None,
            derandomize=False,
            print_blob=False,
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(self._seed)(configured(given(strategy)(test)))()
        except Violation:
            raise smallest[0][1] from None
        except BaseException as error:
            if smallest and not isinstance(error, Interrupted):
                # Hypothesis saw other results on the replay: the cache is not deterministic.
                violation = smallest[0][1]
                violation.message += " (not on every run: the cache does not repeat itself)"
                raise violation from error
            raise

    def for_each(self, values: Iterable[T], property: Callable[[T], None]) -> None:
        """Try a property on listed values, in order."""
        for value in values:
            self.tried += 1
            restart()
            with suppress(EndOfTrace):
                property(value)


class Session:
    """One subject and the verdicts on it, each found out once.

    A clause that builds on others asks for their verdicts first. They are deterministic, so
    several processes that share the work agree on what is blocked.
    """

    def __init__(
        self, subject: Subject, *, effort: str = "default", seed: str = "", strict: bool = False
    ) -> None:
        if effort not in EXAMPLES:
            raise ValueError(f"effort must be one of {', '.join(EXAMPLES)}, got {effort!r}")
        self.subject = subject
        self.effort = effort
        self.seed = seed
        self.strict = strict
        profile = examine(subject)
        self.parts: tuple[Part, ...] = ()
        try:
            with limited():
                self.profile, self.notes = restrict(profile)
                self.parts = parts_of(self.profile)
        except Interrupted:
            raise
        except BaseException as error:
            # The first check that meets it says so.
            self.profile = profile
            self.notes = [f"sizes were not tried: {_named(error)}"]
        self._traits: Traits | None = None
        self._results: dict[str, Result] = {}
        self._runaway: str | None = None

    def result(self, clause: str) -> Result:
        """The verdict on a clause."""
        if clause not in self._results:
            started = time.perf_counter()
            result = self._judge(REGISTRY[clause].id)
            result.seconds = time.perf_counter() - started
            self._results[clause] = self._expect(result)
        return self._results[clause]

    def report(
        self,
        clauses: Iterable[str] | None = None,
        progress: Callable[[Result], None] | None = None,
    ) -> Report:
        """The verdicts on all clauses, or on some."""
        wanted = list(REGISTRY) if clauses is None else [REGISTRY[name].id for name in clauses]
        results = []
        for clause in wanted:
            results.append(self.result(clause))
            if progress is not None:
                progress(results[-1])
        return self.report_of(results)

    def report_of(self, results: list[Result]) -> Report:
        """A report with these results."""
        if self._traits is None:
            self._traits = Traits.of(self.profile, asks=self._runaway is None)
        claims = self.profile.claims
        shown = {"visibility": str(claims.visibility)}
        if self.profile.capabilities.storage_backed:
            shown |= {
                "batch sizes": ", ".join(map(str, claims.batch_sizes)),
                "head dims (keys/values)": ", ".join(f"{k}/{v}" for k, v in claims.head_dims),
                "dtypes": ", ".join(claims.dtypes),
            }
        if claims.left_padding is not None:
            shown["left padding"] = ", ".join(map(str, claims.left_padding))
        if self.profile.is_pool:
            shown["slots"] = str(claims.slots)
            shown["pool layers"] = str(claims.pool_layers)
        if claims.start:
            shown["start"] = str(claims.start)
        fields = {"head dims (keys/values)": "head_dims"}
        return Report(
            target=self.subject.target,
            class_name=self.profile.capabilities.class_name,
            contracts=self.profile.contracts,
            visibility=str(claims.visibility),
            claims=[
                (name, value, claims.source(fields.get(name, name.replace(" ", "_"))))
                for name, value in shown.items()
            ],
            notes=self.notes,
            results=results,
            effort=self.effort,
            strict=self.strict,
            package=package_of(self.profile.capabilities.class_name),
            traits=self._traits,
        )

    def _judge(self, clause: str) -> Result:
        entry = CHECKS.get(clause)
        if entry is None:
            return Result(clause, Verdict.NOT_RUN, "the suite has no check for it yet")
        reason = self._not_offered(entry)
        if reason:
            return Result(clause, Verdict.SKIP, reason, test=entry.name)
        if self._runaway is not None:
            reason = f"the cache ran away under {self._runaway}"
            return Result(clause, Verdict.BLOCKED, reason, test=entry.name)
        context = Context(self, clause, EXAMPLES[self.effort], self.seed)
        try:
            with limited():
                reason = entry.skip(self.profile)
            if reason:
                raise NotApplicable(reason)
            for need in entry.needs:
                if self.result(need).verdict in BLOCKING:
                    raise BlockedBy(need)
            with limited():
                entry.function(context)
        except Violation as violation:
            result = self.failure(clause, violation)
        except BlockedBy as need:
            result = Result(clause, Verdict.BLOCKED, f"builds on {need}")
        except NotApplicable as reason:
            result = Result(clause, Verdict.SKIP, str(reason))
        except Exception as error:
            frames = "".join(traceback.format_exception(error))
            result = Result(clause, Verdict.ERROR, f"the suite raised: {error!r}\n{frames}")
        except Interrupted:
            raise
        except BaseException as error:
            # No Exception, so neither the suite nor a library raised it, but the cache.
            result = Result(
                clause,
                Verdict.FAIL,
                f"the cache {_named(error)}",
                "no exception",
                type(error).__name__,
                fatal=isinstance(error, OutOfLimits),
            )
        else:
            result = Result(clause, Verdict.PASS)
        if result.fatal:
            self._runaway = clause
        result.test = entry.name
        result.examples = context.tried
        return result

    def failure(self, clause: str, violation: Violation) -> Result:
        """The result of a check that this violation ended."""
        return Result(
            clause,
            Verdict.FAIL,
            violation.message,
            violation.expected,
            violation.observed,
            self._program(clause, violation),
            violation.operations,
            fatal=isinstance(violation, Runaway),
        )

    def _not_offered(self, entry: Check) -> str | None:
        contract = REGISTRY.contract_of(entry.clause).name
        if contract not in self.profile.contracts:
            if contract in OF_STORING and not self.profile.capabilities.storage_backed:
                return "stores no keys and values; the contract of its own kind says what it owes"
            return NOT_CLAIMED.get(contract, f"does not offer the contract {contract}")
        stores = self.profile.capabilities.storage_backed or self.profile.is_pool
        if contract in OF_STORING and not stores and not self.parts:
            return "was constructed without children that hold anything"
        return None

    def _expect(self, result: Result) -> Result:
        reason = self.subject.expected_failures.get(result.clause)
        if reason is None or result.fatal:
            return result
        if result.verdict in (Verdict.FAIL, Verdict.BLOCKED):
            result.message = f"{reason} ({result.message})"
            result.verdict = Verdict.EXPECTED_FAILURE
        elif result.verdict is Verdict.PASS:
            result.verdict = Verdict.UNEXPECTED_PASS
            result.message = f"passes, but is listed as an expected failure: {reason}"
        return result

    def _program(self, clause: str, violation: Violation) -> str:
        entry = REGISTRY[clause]
        title = [
            f"{clause} ({entry.level}): {self.subject.target}",
            *_wrap(entry.sentence),
            f"Expected: {violation.expected}",
            f"Observed: {violation.observed}",
        ]
        return render_program(
            title=title,
            imports=[*self.subject.imports, *violation.imports],
            call=self.subject.call,
            name=self.profile.name,
            dims=violation.dims or default_dims(self.profile),
            body=violation.body,
        )


OF_STORING = frozenset(
    {"restore", "copying", "trim", "measure", "window", "quantize", "batch", "threads"}
)
"""Contracts whose checks append keys and values, or assign slots."""

NOT_CLAIMED = {
    "position": "has no offset",
    "mask": "is no attention cache (no update_and_fetch)",
    "update": "does not store (data-free, or no update_and_fetch)",
    "opaque": "has no attend: it returns keys and values, not handles",
    "state": "has no state",
    "data-free": "is not data-free",
    "read-back": "has neither keys_and_values nor keys and values",
    "restore": "has no from_state, and its state cannot be assigned",
    "trim": "has neither is_trimmable nor trim",
    "measure": "has none of size, empty and nbytes",
    "window": "declares no window, sinks or chunk",
    "batch": "has no merge, and is no batch",
    "recurrent": "has no slots (no __getitem__ with lengths or advance)",
    "composite": "has no caches",
    "prompt": "is a cache: what handles lists of caches is judged by it",
    "pool": "is no pool (no set_kv), or its pool cannot be constructed from this target",
    "snapshot": "is no snapshot store (no store_cache and restore_cache, no transaction)",
    "layout": "is no layout (no attention_layer_indices and auxiliary_layer_indices)",
    "decode": "has none of write_token, get_kv and reset",
    "quantize": "has neither bits nor to_quantized",
}


def _named(error: BaseException) -> str:
    return str(error) if isinstance(error, OutOfLimits) else f"raises {type(error).__name__}"


def _wrap(text: str, width: int = 92) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def fresh_seed() -> str:
    """A seed for exploring; it is printed, so that a find can be repeated."""
    return f"{random.SystemRandom().getrandbits(32):08x}"
