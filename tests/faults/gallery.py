"""How a fault is put on the list.

This module and the faults import neither kvproto nor conformance, so that a printed
counterexample can construct them without the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Fault:
    """A cache with exactly one fault."""

    cls: type
    clause: str
    """The clause that it breaks."""
    also: tuple[str, ...] = ()
    """Further MUST clauses that the same fault breaks by their own words."""
    arguments: str = ""
    """What the constructor is given, as Python."""
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Claims that cannot be read off the class."""
    effort: str = "quick"
    """The least effort that finds it."""

    @property
    def target(self) -> str:
        return f"{self.cls.__module__}:{self.cls.__qualname__}({self.arguments})"

    @property
    def id(self) -> str:
        return f"{self.clause}-{self.cls.__name__}"


FAULTS: list[Fault] = []


def fault(
    clause: str,
    *,
    also: tuple[str, ...] = (),
    arguments: str = "",
    claims: Mapping[str, Any] | None = None,
    effort: str = "quick",
) -> Callable[[C], C]:
    """Put a class on the list of faults."""

    def register(cls: C) -> C:
        FAULTS.append(Fault(cls, clause, also, arguments, dict(claims or {}), effort))
        return cls

    return register


class Absent:
    """In a class body: the inherited member is not there (``hasattr`` is False)."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, cache: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(self.name)
