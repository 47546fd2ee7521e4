"""Mutants that no test can kill, because they do the same, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Equivalent:
    """A mutant by the lines that it changes, so that it is found again when the file moves."""

    module: str
    function: str
    was: str
    becomes: str
    reason: str

    def is_of(self, module: str, function: str, was: str, becomes: str) -> bool:
        return (self.module, self.function, self.was, self.becomes) == (
            *(module, function),
            *(was, becomes),
        )


EQUIVALENTS: tuple[Equivalent, ...] = ()
