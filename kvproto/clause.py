"""Clauses: the numbered sentences of the spec, and the registry that holds them.

A clause is data, so that one source feeds the suite (which test checks it), the failure
report (what was broken and who relies on it), the terminal (``kvproto explain``) and the docs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

SPEC_VERSION = "2026.12"
"""Calendar version of the spec. Ids are never reused; texts may be sharpened between versions."""

_ID = re.compile(r"[A-Z]+-[0-9]+\Z")


class Level(str, Enum):
    """How binding a clause is (the words of RFC 2119)."""

    MUST = "MUST"
    """Decides conformance: a consumer crashes, leaks or silently computes something else."""
    SHOULD = "SHOULD"
    """A hazard or good engineering: reported, and a failure only under ``--strict``."""
    MAY = "MAY"
    """A freedom, stated so that no test forbids it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Clause:
    """One numbered sentence of the spec.

    Raises:
        ValueError: the id is not of the form ``NAME-1``, a text is empty, or a MUST names no
            consumer. The last one keeps the spec honest: where nobody breaks it is a SHOULD.
    """

    id: str
    level: Level
    text: str
    """What holds, as the rest of a sentence that begins "<who> <level> ..."."""
    why: str
    """What goes wrong without it."""
    relied_on_by: tuple[str, ...] = ()
    """Consumers, as ``package: function (what it does with the answer)``."""
    faults: tuple[str, ...] = ()
    """Public issues about real caches that broke it, as ``owner/repository#number``."""
    since: str = SPEC_VERSION
    who: str = "A cache"

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise ValueError(f"Clause id {self.id!r} is not of the form NAME-1")
        if not self.text.strip() or not self.why.strip():
            raise ValueError(f"Clause {self.id} has no text or no rationale")
        if self.level is Level.MUST and not self.relied_on_by:
            raise ValueError(
                f"Clause {self.id} is a MUST but names no consumer that breaks without it; "
                "name one in relied_on_by, or make it a SHOULD"
            )

    @property
    def sentence(self) -> str:
        """The clause as one full sentence."""
        return f"{self.who} {self.level} {self.text}"


@dataclass(frozen=True)
class Contract:
    """Clauses about one member or capability: one module, one page, one module of checks."""

    name: str
    title: str
    summary: str
    clauses: tuple[Clause, ...]


class Registry(Mapping[str, Clause]):
    """Every clause by id, in the order of the spec."""

    def __init__(self) -> None:
        self._contracts: dict[str, Contract] = {}
        self._clauses: dict[str, Clause] = {}
        self._contract_of: dict[str, Contract] = {}

    def register(
        self, name: str, title: str, summary: str, clauses: tuple[Clause, ...]
    ) -> Contract:
        """Add a contract.

        Raises:
            ValueError: the contract or one of its clause ids is registered already.
        """
        if name in self._contracts:
            raise ValueError(f"Contract {name!r} is registered already")
        ids = [clause.id for clause in clauses]
        for clause_id in ids:
            if clause_id in self._clauses or ids.count(clause_id) > 1:
                raise ValueError(f"Clause {clause_id} of contract {name!r} is registered already")
        contract = Contract(name, title, summary, clauses)
        self._contracts[name] = contract
        for clause in clauses:
            self._clauses[clause.id] = clause
            self._contract_of[clause.id] = contract
        return contract

    def __getitem__(self, clause_id: str) -> Clause:
        try:
            return self._clauses[clause_id]
        except KeyError:
            raise KeyError(
                f"No clause {clause_id!r}; there are {', '.join(self._clauses)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._clauses)

    def __len__(self) -> int:
        return len(self._clauses)

    def __contains__(self, clause_id: object) -> bool:
        return clause_id in self._clauses

    @property
    def contracts(self) -> tuple[Contract, ...]:
        return tuple(self._contracts.values())

    def contract_of(self, clause_id: str) -> Contract:
        """The contract that a clause belongs to."""
        return self._contract_of[self[clause_id].id]


REGISTRY = Registry()
