"""Which columns of a batch are no tokens: the bookkeeping that the batched caches share.

In a batch the tokens of the rows stand in common columns, counted from 0 on. The first columns of
a row may be padding, because a longer row is beside it or because its prompt was padded at the
left. And while prompts of different lengths are fed, padded at the right, the newest columns of a
row may be padding, until ``finalize`` moves it to the left.

All of it is kept as Python ints: what to mask, move or drop is known when a call is made, and no
step has to wait for an array (UPD-12).
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from reference_impl.arguments import checked_ints

Announced = tuple["int | None", int, int]
"""Padding at the right that is announced for one row: how many of the columns since then come
before it (None if that was not said); how many of the newest columns it will be, where the first is
None; how many columns have come since then."""

NOTHING: Announced = (None, 0, 0)
"""No padding at the right to come."""


class RowPadding:
    """The padding of each row of a batch. Methods replace the lists, and never change one.

    Args:
        left: columns of padding at the start of each row, those to come included.
    """

    def __init__(self, left: Sequence[int], announced: Sequence[Announced] | None = None) -> None:
        self.left = list(left)
        self._announced = [NOTHING] * len(self.left) if announced is None else list(announced)

    @property
    def rows(self) -> int:
        """Number of rows, B."""
        return len(self.left)

    @property
    def announced(self) -> list[Announced]:
        """What is announced for each row."""
        return list(self._announced)

    @property
    def pending(self) -> bool:
        """Whether padding at the right is announced."""
        return any(announced != NOTHING for announced in self._announced)

    def right(self, columns: int, *, unfed: bool = True) -> list[int]:
        """How many of the newest columns are padding in each row, ``columns`` being held.

        With ``unfed`` False, none in the rows to which no column has come since the announcement.

        Where only their final number was announced, and not after which column they start, that
        number is taken for granted: it is right once the last column has come.
        """
        right = []
        for left, (before, after, fed) in zip(self.left, self._announced, strict=True):
            count = after if before is None else max(fed - before, 0)
            right.append(min(count, max(columns - left, 0)) if fed or unfed else 0)
        return right

    def advance(self, columns: int) -> None:
        """Note that so many columns have come."""
        if self.pending:
            self._announced = [
                announced if announced == NOTHING else (*announced[:2], announced[2] + columns)
                for announced in self._announced
            ]

    def retract(self, columns: int) -> None:
        """Note that so many of the newest columns were trimmed, as if they had not come."""
        self._announced = [
            (before, right, max(fed - columns, 0)) for before, right, fed in self._announced
        ]

    def announce(self, lengths: list[int] | None, right: list[int] | None) -> None:
        """Replace what was announced; see :func:`checked_right_padding`."""
        if lengths is not None:
            self._announced = [(length, 0, 0) for length in lengths]
        elif right is not None:
            self._announced = [(None, count, 0) for count in right]

    def checked_left(self, owner: str, more: object, columns: int) -> list[int]:
        """``left`` with ``more`` columns each, ``columns`` being held.

        Raises:
            TypeError: ``more`` is neither None nor integers.
            ValueError: a number is negative, there is not one for each row, or there are columns
                already, so that what is added would not come first.
        """
        if more is None:
            return self.left
        numbers = checked_ints(owner, "left_padding", more, minimum=0, length=self.rows)
        if any(numbers) and columns:
            raise ValueError(f"{owner}: left_padding can only be added while empty, got {numbers}")
        return [old + new for old, new in zip(self.left, numbers, strict=True)]

    def settle(self, right: list[int]) -> None:
        """Note that the newest ``right`` columns of each row were moved to its left."""
        self.left = [left + moved for left, moved in zip(self.left, right, strict=True)]
        self._announced = [NOTHING] * self.rows

    def selected(self, kept: Sequence[int], *, dropped: int = 0) -> RowPadding:
        """These rows, after the first ``dropped`` columns, padding in all of them, are gone."""
        left = [self.left[row] - dropped for row in kept]
        return RowPadding(left, [self._announced[row] for row in kept])

    def joined(self, shift: int, other: RowPadding, other_shift: int) -> RowPadding:
        """These rows and then those of ``other``, each shifted to the right by columns."""
        left = [left + shift for left in self.left] + [left + other_shift for left in other.left]
        return RowPadding(left, self._announced + other._announced)

    def to_arrays(self) -> tuple[mx.array, mx.array | None]:
        """As parts of a ``state``: left (B,), and what is announced (B, 3), or None if nothing."""
        announced = [[-1 if before is None else before, *rest] for before, *rest in self._announced]
        return (
            mx.array(self.left, mx.int32),
            mx.array(announced, mx.int32) if self.pending else None,
        )

    @classmethod
    def from_arrays(cls, owner: str, left: object, announced: object) -> RowPadding:
        """What :meth:`to_arrays` gave; this evaluates the arrays.

        Raises:
            TypeError: one of them is no integer array.
            ValueError: a number is negative, or their shapes do not fit.
        """
        lefts = checked_ints(owner, "state left_padding", left, minimum=0)
        if announced is None:
            return cls(lefts)
        if not isinstance(announced, mx.array):
            raise TypeError(f"{owner}: state padding must be an mx.array or None")
        if announced.shape != (len(lefts), 3):
            raise ValueError(
                f"{owner}: state padding must have shape ({len(lefts)}, 3), got {announced.shape}"
            )
        numbers = checked_ints(owner, "state padding", announced.reshape(-1), minimum=-1)
        triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
        return cls(lefts, [(None if a < 0 else a, max(b, 0), max(c, 0)) for a, b, c in triples])


def checked_right_padding(
    owner: str, lengths: object, right_padding: object, rows: int | None
) -> tuple[list[int] | None, list[int] | None]:
    """``lengths`` and ``right_padding`` as ``prepare`` takes them.

    ``lengths`` says how many of the columns to come precede the padding at the right of each row,
    padding at the left included; ``right_padding``, how many columns come after them.

    Raises:
        TypeError: one of them is neither None nor integers.
        ValueError: a number is negative, there is not one for each row, or both together make
            another number of columns for one row than for another.
    """
    before = after = None
    if lengths is not None:
        before = checked_ints(owner, "lengths", lengths, minimum=0, length=rows)
        rows = len(before)
    if right_padding is not None:
        after = checked_ints(owner, "right_padding", right_padding, minimum=0, length=rows)
    if before is not None and after is not None:
        columns = {a + b for a, b in zip(before, after, strict=True)}
        if len(columns) > 1:
            raise ValueError(
                f"{owner}: lengths and right_padding must make as many columns for every row, got "
                f"{before} and {after}"
            )
    return before, after
