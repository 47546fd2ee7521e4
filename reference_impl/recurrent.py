"""A cache for layers that carry a state of fixed size: convolution tails, SSM states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import mlx.core as mx
from typing_extensions import Self

from reference_impl.arguments import check_int, checked_ints, checked_row, checked_selection
from reference_impl.padding import checked_right_padding

RecurrentState: TypeAlias = (
    "tuple[list[mx.array | None], list[mx.array | None], int | None, "
    "mx.array | None, mx.array | None]"
)
"""The slots, the rows of each that are unset (None for none), the number of rows (None while it is
not known), lengths and left_padding (B,)."""

_NO_LIMIT = 2**30
"""Length of a row without right padding, beside rows that have some."""


class RecurrentCache:
    """Holds ``n_slots`` arrays, each (B, ...), which the layer replaces at every step.

    A slot is None before its first use (REC-1). What the arrays are is the layer's business; all
    have one row for each sequence. There is no token in here that could be taken out again, so
    there is no ``trim`` (REC-4), and no ``offset``.

    In a padded batch, some columns of a step are no tokens of some rows. ``left_padding`` says for
    each row how many of the columns still to come are padding, and ``lengths`` how many of them,
    such padding included, come before the padding at the right. The layer calls :meth:`advance`
    once a step. Both are kept as Python ints, and are made into arrays when they are read: so no
    step waits for one (UPD-12), no captured array changes (REC-2), and no graph grows with the
    number of steps (STATE-2).

    A row that was merged from a cache with an unset slot holds zeros there, which is what layers
    take an unset slot for, until the slot is set; extracted before that, it is unset again.

    Args:
        n_slots: number of slots.
        lengths: tokens of each row still to come, where rows end before the columns do.
        left_padding: columns of padding at the start of each row.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: ``n_slots`` is below 1, a number is negative, or the two differ in their length.
    """

    def __init__(
        self,
        n_slots: int,
        *,
        lengths: Sequence[int] | mx.array | None = None,
        left_padding: Sequence[int] | mx.array | None = None,
    ) -> None:
        owner = type(self).__name__
        check_int(owner, "n_slots", n_slots, minimum=1)
        self._slots: list[mx.array | None] = [None] * n_slots
        # For each slot that is set, the rows that hold zeros because theirs is not.
        self._unset: list[frozenset[int]] = [frozenset()] * n_slots
        # None until an argument or the first array tells.
        self._n_rows: int | None = None
        self._lengths: list[int] | None = None
        self._left_padding: list[int] | None = None
        self.prepare(lengths=lengths, left_padding=left_padding)

    def __getitem__(self, index: int, /) -> mx.array | None:
        """The array of a slot, or None while it is unset (REC-1).

        Raises:
            TypeError: ``index`` is not an int.
            IndexError: there is no such slot; iteration ends by this.
        """
        return self._slots[self._checked_slot(index)]

    def __setitem__(self, index: int, array: mx.array | None, /) -> None:
        """Replace the array of a slot; None unsets it. Nothing is written into the old one.

        Raises:
            TypeError: ``index`` is not an int, or ``array`` neither an ``mx.array`` nor None.
            IndexError: there is no such slot.
            ValueError: the array has no row axis, or not as many rows as the cache.
        """
        owner = type(self).__name__
        index = self._checked_slot(index)
        if array is not None:
            _check_slot(owner, array, self._n_rows)
            self._n_rows = array.shape[0]
            # Item assignments by the caller to its own object do not reach this one.
            array = array[...]
        self._slots[index] = array
        self._unset[index] = frozenset()

    @property
    def lengths(self) -> mx.array | None:
        """Columns to come before the padding at the right of each row (B,), or None (REC-2).

        Every read gives a new array. It may be set, to whole numbers of any sign.

        Raises:
            TypeError: on setting it to no integers.
            ValueError: on setting it to another number of rows.
        """
        return None if self._lengths is None else mx.array(self._lengths, mx.int32)

    @lengths.setter
    def lengths(self, lengths: Sequence[int] | mx.array | None) -> None:
        self._lengths = self._checked_numbers("lengths", lengths)

    @property
    def left_padding(self) -> mx.array | None:
        """Columns of padding to come at the left of each row (B,), or None (REC-2).

        Every read gives a new array. It may be set, to whole numbers of any sign.

        Raises:
            TypeError: on setting it to no integers.
            ValueError: on setting it to another number of rows.
        """
        return None if self._left_padding is None else mx.array(self._left_padding, mx.int32)

    @left_padding.setter
    def left_padding(self, left_padding: Sequence[int] | mx.array | None) -> None:
        self._left_padding = self._checked_numbers("left_padding", left_padding)

    def advance(self, n: int, /) -> None:
        """Note that n columns have passed: lowers ``lengths`` and ``left_padding`` (REC-2).

        Raises:
            TypeError: n is not an int.
            ValueError: n is negative.
        """
        check_int(type(self).__name__, "n", n, minimum=0)
        if self._lengths is not None:
            self._lengths = [length - n for length in self._lengths]
        if self._left_padding is not None:
            self._left_padding = [padding - n for padding in self._left_padding]

    def make_mask(self, N: int, /) -> mx.array | None:
        """Which of the next N columns are tokens: boolean (B, N), or None for all (REC-3).

        Raises:
            TypeError: N is not an int.
            ValueError: N is below 1.
        """
        check_int(type(self).__name__, "N", N, minimum=1)
        columns = mx.arange(N)
        mask = None
        if self._left_padding is not None and any(padding > 0 for padding in self._left_padding):
            mask = columns >= mx.array(self._left_padding)[:, None]
        if self._lengths is not None and any(length < N for length in self._lengths):
            before_end = columns < mx.array(self._lengths)[:, None]
            mask = before_end if mask is None else mask & before_end
        return mask

    @property
    def state(self) -> RecurrentState:
        """Slots and padding, as a snapshot (STATE-1 to STATE-4, STATE-6, REC-5).

        Setting it replaces everything (REST-8), and needs no ``__init__`` to have run (REST-2).

        Raises:
            TypeError: on setting a state with a member of the wrong type.
            ValueError: on setting a state whose members do not fit each other.
        """
        slots = [None if array is None else array[...] for array in self._slots]
        unset = [mx.array(sorted(rows), mx.int32) if rows else None for rows in self._unset]
        return slots, unset, self._n_rows, self.lengths, self.left_padding

    @state.setter
    def state(self, state: RecurrentState) -> None:
        owner = type(self).__name__
        slots, unset, n_rows, lengths, left_padding = state
        if not isinstance(slots, (list, tuple)) or not isinstance(unset, (list, tuple)):
            raise TypeError(f"{owner}: state must hold the slots and their unset rows as lists")
        if not slots or len(slots) != len(unset):
            raise ValueError(
                f"{owner}: state must hold at least one slot, and as many lists of unset rows, "
                f"got {len(slots)} and {len(unset)}"
            )
        if n_rows is not None:
            check_int(owner, "state rows", n_rows, minimum=0)
        new_slots, new_unset = [], []
        for array, rows in zip(slots, unset, strict=True):
            if array is not None:
                _check_slot(owner, array, n_rows)
            new_slots.append(None if array is None else array[...])
            unset_rows = [] if rows is None else checked_selection(owner, rows, n_rows or 0)
            new_unset.append(frozenset(unset_rows))
        numbers = []
        for name, values in (("lengths", lengths), ("left_padding", left_padding)):
            if values is not None and n_rows is None:
                raise ValueError(f"{owner}: state must say how many rows it has, beside {name}")
            numbers.append(
                None if values is None else checked_ints(owner, name, values, length=n_rows)
            )
        self._slots, self._unset, self._n_rows = new_slots, new_unset, n_rows
        self._lengths, self._left_padding = numbers

    @classmethod
    def from_state(cls, state: RecurrentState) -> Self:
        """A cache that nothing tells from the one that gave ``state`` (REST-1 to REST-6)."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache

    def is_trimmable(self) -> bool:
        """Always False: a recurrent state cannot be rewound (REC-4), and there is no ``trim``."""
        return False

    def empty(self) -> bool:
        """Whether no slot is set (MEAS-2)."""
        return all(array is None for array in self._slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots (MEAS-3)."""
        return sum(array.nbytes for array in self._slots if array is not None)

    @classmethod
    def merge(cls, caches: Sequence[Self], /) -> Self:
        """A batch of the rows of ``caches``, in their order; these are left as they are (BATCH-8).

        A cache in which nothing says how many rows it has counts as one row.

        Raises:
            TypeError: one of them is of another class.
            ValueError: there is none, or they differ in slots, shapes or dtypes.
        """
        owner = cls.__name__
        if not caches:
            raise ValueError(f"{owner}: caches must hold at least one, got none")
        for cache in caches:
            if type(cache) is not cls:
                raise TypeError(f"{owner}: caches must all be {owner}, got {type(cache).__name__}")
        merged = cls.__new__(cls)
        merged._take_rows_of(caches)
        return merged

    def extend(self, other: Self, /) -> None:
        """Add the rows of ``other`` after those of this cache (BATCH-4).

        Raises:
            TypeError: ``other`` is of another class.
            ValueError: it differs in slots, shapes or dtypes.
        """
        if type(other) is not type(self):
            owner = type(self).__name__
            raise TypeError(f"{owner}: other must be a {owner}, got {type(other).__name__}")
        self._take_rows_of([self, other])

    def filter(self, keep: Sequence[int] | mx.array, /) -> None:
        """Keep these rows, in this order (BATCH-4); none is legal (BATCH-10).

        Args:
            keep: row numbers; an array is evaluated.

        Raises:
            TypeError: ``keep`` holds no integers.
            ValueError: there is no such row.
        """
        kept = checked_selection(type(self).__name__, keep, self._rows())
        for slot, (array, unset) in enumerate(zip(self._slots, self._unset, strict=True)):
            rows = frozenset(new for new, old in enumerate(kept) if old in unset)
            all_unset = len(rows) == len(kept) > 0
            self._slots[slot] = None if all_unset else _rows_of(array, kept)
            self._unset[slot] = frozenset() if all_unset else rows
        self._lengths = None if self._lengths is None else [self._lengths[i] for i in kept]
        if self._left_padding is not None:
            self._left_padding = [self._left_padding[i] for i in kept]
        self._n_rows = len(kept)

    def extract(self, index: int, /) -> Self:
        """One row by itself, in memory of its own (BATCH-8, MEAS-4).

        Padding still to come belongs to the columns of the batch, and is not taken along.

        Raises:
            TypeError: ``index`` is not an int.
            ValueError: there is no such row.
        """
        row = checked_row(type(self).__name__, index, self._rows())
        extracted = type(self).__new__(type(self))
        extracted._slots = [
            None if row in unset else _rows_of(array, [row])
            for array, unset in zip(self._slots, self._unset, strict=True)
        ]
        extracted._unset = [frozenset()] * len(self._slots)
        extracted._n_rows = None if extracted.empty() else 1
        extracted._lengths = extracted._left_padding = None
        return extracted

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | mx.array | None = None,
        lengths: Sequence[int] | mx.array | None = None,
        right_padding: Sequence[int] | mx.array | None = None,
    ) -> None:
        """Announce padding in the columns to come (BATCH-6).

        Args:
            left_padding: columns of padding that come first in each row, beside those pending.
            lengths: columns of each row that come before its padding at the right, padding at the
                left included; replaces what was announced.
            right_padding: columns of padding that come last. It follows from ``lengths``, and
                cannot be understood without: nothing here tells how many columns will come.

        Raises:
            TypeError: an argument holds no integers.
            ValueError: a number is negative, there is not one for each row, there is padding at
                the right and no ``lengths``, or the two do not fit each other.
        """
        owner = type(self).__name__
        n_rows = self._n_rows
        new_padding = None
        if left_padding is not None:
            new_padding = checked_ints(
                owner, "left_padding", left_padding, minimum=0, length=n_rows
            )
            n_rows = len(new_padding)
        new_lengths, ends = checked_right_padding(owner, lengths, right_padding, n_rows)
        if ends is not None and any(ends) and new_lengths is None:
            raise ValueError(f"{owner}: right_padding needs lengths beside it, got {ends}")
        for numbers in (new_lengths, ends):
            n_rows = n_rows if numbers is None else len(numbers)
        self._n_rows = n_rows
        if new_padding is not None:
            pending = self._left_padding or [0] * len(new_padding)
            self._left_padding = [
                max(old, 0) + new for old, new in zip(pending, new_padding, strict=True)
            ]
        if new_lengths is not None:
            self._lengths = new_lengths

    def finalize(self) -> None:
        """End the padding at the right: the next column is a token of every row again (BATCH-5).

        Padding at the left ends by itself; what has not come yet stays announced.
        """
        self._lengths = None
        if self._left_padding is not None and max(self._left_padding, default=0) <= 0:
            self._left_padding = None

    def _rows(self) -> int:
        return 1 if self._n_rows is None else self._n_rows

    def _checked_slot(self, index: object) -> int:
        # Not check_int: iteration and list-like use need IndexError, and may count from the end.
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"{type(self).__name__}: index must be an int, got {index!r}")
        if not -len(self._slots) <= index < len(self._slots):
            raise IndexError(
                f"{type(self).__name__}: index must be one of {len(self._slots)} slots, got {index}"
            )
        return index

    def _checked_numbers(self, name: str, values: object) -> list[int] | None:
        if values is None:
            return None
        numbers = checked_ints(type(self).__name__, name, values, length=self._n_rows)
        self._n_rows = len(numbers)
        return numbers

    def _take_rows_of(self, members: Sequence[RecurrentCache]) -> None:
        """Become a batch of the members' rows; ``self`` may be one of them."""
        owner = type(self).__name__
        n_slots = len(members[0]._slots)
        counts = [member._rows() for member in members]
        starts = [sum(counts[:i]) for i in range(len(counts))]
        for member in members:
            if len(member._slots) != n_slots:
                raise ValueError(
                    f"{owner}: caches must have the {n_slots} slots of the first, got one with "
                    f"{len(member._slots)}"
                )
        n_rows = sum(counts)
        slots, unset = [], []
        for slot in range(n_slots):
            arrays = [member._slots[slot] for member in members]
            stacked = _stacked(owner, slot, arrays, counts)
            rows: set[int] = set()
            for member, array, start, count in zip(members, arrays, starts, counts, strict=True):
                own = range(count) if array is None else member._unset[slot]
                rows.update(start + row for row in own)
            if len(rows) == n_rows > 0:
                stacked, rows = None, set()
            slots.append(stacked)
            unset.append(frozenset(rows))
        lengths = _listed(members, counts, lambda member: member._lengths, _NO_LIMIT)
        left_padding = _listed(members, counts, lambda member: member._left_padding, 0)
        self._slots, self._unset, self._n_rows = slots, unset, n_rows
        self._lengths, self._left_padding = lengths, left_padding


def _check_slot(owner: str, array: object, n_rows: int | None) -> None:
    if not isinstance(array, mx.array):
        raise TypeError(f"{owner}: a slot must be an mx.array or None, got {array!r}")
    if array.ndim == 0 or (n_rows is not None and array.shape[0] != n_rows):
        raise ValueError(
            f"{owner}: a slot must have an axis of {'its' if n_rows is None else n_rows} rows "
            f"first, got shape {array.shape}"
        )


def _rows_of(array: mx.array | None, rows: list[int]) -> mx.array | None:
    # Not a slice, which would keep the memory of the whole batch alive.
    return None if array is None else mx.take(array, mx.array(rows, mx.int32), axis=0)


def _stacked(
    owner: str, slot: int, arrays: Sequence[mx.array | None], counts: Sequence[int]
) -> mx.array | None:
    """The arrays below each other, zeros for those that are unset; None if all are."""
    first = next((array for array in arrays if array is not None), None)
    if first is None:
        return None
    parts = []
    for array, count in zip(arrays, counts, strict=True):
        if array is None:
            array = mx.zeros((count, *first.shape[1:]), first.dtype)
        elif array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
            raise ValueError(
                f"{owner}: slot {slot} must have the shape {first.shape[1:]} and dtype "
                f"{first.dtype} in all caches, got {array.shape[1:]} and {array.dtype}"
            )
        parts.append(array)
    return mx.concatenate(parts, axis=0)


def _listed(
    members: Sequence[RecurrentCache],
    counts: Sequence[int],
    numbers_of: Callable[[RecurrentCache], list[int] | None],
    without: int,
) -> list[int] | None:
    """The members' numbers one after the other, ``without`` for those that have none."""
    if all(numbers_of(member) is None for member in members):
        return None
    return [
        number
        for member, count in zip(members, counts, strict=True)
        for number in (numbers_of(member) or [without] * count)
    ]
