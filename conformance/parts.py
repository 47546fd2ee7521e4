"""Runs on caches that are no attention cache themselves: slots of state, and caches of caches.

One operation is taken by every part as the layer would: a part that stores keys and values is
asked for its mask and gets its tokens, with a log of its own; a part with slots has them read,
compared with what was assigned last, and assigned anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import mlx.core as mx

from conformance.log import TokenLog
from conformance.probe import refusal, restrict
from conformance.subject import Profile, Subject, examine
from conformance.tags import Dims
from conformance.trace import Ask, EndOfTrace, Run, Step, default_dims, guarded, plain
from kvproto import is_storage_backed

MOST_SLOTS = 64


def leaves(cache: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a cache that hold something, with the expression that leads there."""
    if hasattr(cache, "caches"):
        for index, child in enumerate(cache.caches):
            yield from leaves(child, f"{path}.caches[{index}]")
    elif is_storage_backed(cache) or _has_slots(cache):
        yield path, cache


def _has_slots(cache: Any) -> bool:
    return hasattr(cache, "__getitem__") and (
        hasattr(cache, "advance") or hasattr(cache, "lengths")
    )


def slots_of(leaf: Any) -> list[Any]:
    """Every slot, as a model that unpacks the cache reads them, at most :data:`MOST_SLOTS`."""
    found = []
    for slot in range(MOST_SLOTS):
        try:
            found.append(leaf[slot])
        except IndexError:
            break
    return found


@dataclass(frozen=True)
class Part:
    """One part of a subject."""

    path: str
    profile: Profile | None
    """What is known of a part that stores keys and values; None for slots."""
    dims: Dims | None = None
    """Sizes that it takes, as all parts of the subject do if there are such."""
    slots: int = 0
    """How many slots a fresh one has."""

    def dims_in(self, dtype: str) -> Dims | None:
        """Its sizes, in this dtype if it takes it."""
        if self.profile is None or self.dims is None:
            return None
        takes = dtype in self.profile.claims.dtypes
        return replace(self.dims, dtype=dtype) if takes else self.dims


def parts_of(profile: Profile) -> tuple[Part, ...]:
    """The parts of a subject that is no attention cache itself; none where it is one."""
    if profile.capabilities.storage_backed or not {"recurrent", "composite"} & {*profile.contracts}:
        return ()
    subject = profile.subject
    found = []
    for index, (path, leaf) in enumerate(leaves(subject.factory())):
        if not is_storage_backed(leaf):
            found.append(Part(path, None, slots=len(slots_of(leaf))))
            continue
        part = Subject(f"{subject.target}{path}", partial(_leaf, subject, index))
        call = f"{subject.call}{path}" if subject.call else None
        own, _ = restrict(examine(replace(part, call=call, imports=subject.imports)))
        found.append(Part(path, own, default_dims(own)))
    # A layer gives all parts the same rows, and a printed program makes them of one size.
    for dims in (part.dims for part in found if part.dims):
        if all(refusal(p.profile, dims)[0] == "works" for p in found if p.profile):
            return tuple(replace(part, dims=dims) for part in found)
    return tuple(found)


def _leaf(subject: Subject, index: int) -> Any:
    return list(leaves(subject.factory()))[index][1]


@dataclass
class Slots:
    """What a part with slots was found to hold."""

    held: list[Any]
    """What was assigned last."""
    got: list[Any]
    lines: list[str]
    """The program that led there."""


@dataclass
class PartsStep(Step):
    """One operation, as every part took it."""

    run: PartsRun
    inner: list[tuple[int, Step]] = field(default_factory=list)
    """The steps of the parts that store, by their place among the parts."""
    slots: list[Slots] = field(default_factory=list)
    """What the other parts held before it."""


class PartsRun(Run):
    """A run on all parts of a cache."""

    def __init__(
        self,
        profile: Profile,
        parts: tuple[Part, ...],
        dims: Dims | None = None,
        *,
        masks: bool = True,
    ) -> None:
        dims = dims or default_dims(profile)
        dims = next((own for part in parts if (own := part.dims_in(dims.dtype))), dims)
        super().__init__(profile, dims, masks=masks)
        self.has_mask = False  # those of its parts are asked
        self.parts = parts
        self.runs = [
            Run(part.profile, part.dims_in(dims.dtype), masks=masks) if part.profile else None
            for part in parts
        ]
        self.slots: list[list[mx.array | None]] = [[None] * part.slots for part in parts]
        """What was assigned last to the slots of each part."""

    # -- going on elsewhere -------------------------------------------------------------------

    def onto(self, cache: Any) -> PartsRun:
        found = [path for path, _ in leaves(cache)]
        if found != [part.path for part in self.parts]:
            self.fail(
                "the new cache has other parts than the old one",
                expected=str([part.path for part in self.parts]),
                observed=str(found),
                code=["print(cache.caches)", "raise AssertionError('other parts')"],
            )
        other = PartsRun(self.profile, self.parts, self.dims, masks=self.asks_masks)
        other._follow(self, cache)
        for index, run in enumerate(self.runs):
            own = other.runs[index]
            if run is not None and own is not None:
                own.log = TokenLog(run.log.left_padding)
                own.log.ids, own.log._next = list(run.log.ids), run.log._next
        other.slots = [list(held) for held in self.slots]
        return other

    # -- operations ---------------------------------------------------------------------------

    @contextmanager
    def inside(self, index: int) -> Iterator[Any]:
        """While a part is driven, it is called ``cache`` in the program."""
        path = self.parts[index].path
        leaf = list(leaves(self.cache))[index][1]
        start = len(self.lines)
        if path:
            self.lines.append(f"whole, cache = cache, cache{path}")
        run = self.runs[index]
        if run is not None:
            run.cache, run.lines, run.operations = leaf, self.lines, self.operations
        yield leaf
        if not path:
            return
        if len(self.lines) == start + 1:
            del self.lines[start:]
        else:
            self.lines.append("cache = whole")

    def step(self, ask: Ask, *, evaluate: bool = True) -> Step:
        start = self.log.length
        ids = self.log.append(ask.count)
        self.operations.append({"op": "step", **vars(ask)})
        count = len(self.operations)
        inner, slots = [], []
        for index, run in enumerate(self.runs):
            with self.inside(index) as leaf:
                if run is None:
                    if evaluate:
                        slots.append(self._slots(index, leaf))
                    self._assign(index, leaf, ids[-1], ask.count)
                else:
                    # Tokens of its own, so that parts that change places are told apart.
                    run.log._next = max(run.log._next, ids[0] + index)
                    inner.append((index, run.step(ask, evaluate=evaluate)))
                    del self.operations[count:]
        step = PartsStep(
            *(self, ask, start, list(self.log.ids), None, None, None, None),
            index=count - 1,
            lines=list(self.lines),
            reads=False,
            inner=inner,
            slots=slots,
        )
        self.steps.append(step)
        return step

    def trim(self, count: int) -> int:
        removed = super().trim(count)
        if removed and any(run is None for run in self.runs):
            raise EndOfTrace("slots cannot be rewound (REC-4, COMP-1)")
        for run in self.runs:
            if run is not None:
                run.log.trim(removed)
        return removed

    def _assign(self, index: int, leaf: Any, number: int, count: int) -> None:
        """A step of a layer: it replaces the slots.

        The first step leaves slots after the first ``count`` unset, as a layer does that needs
        them only later.
        """
        held = self.slots[index]
        first = all(array is None for array in held)
        for slot in range(min(count, len(held)) if first else len(held)):
            value = float(100 * number + slot)
            array = mx.full((self.dims.batch, slot + 1, 3), value)
            line = f"cache[{slot}] = mx.full({array.shape}, {value})"
            self.call(line, partial(leaf.__setitem__, slot, array))
            held[slot] = array
        if hasattr(leaf, "advance"):
            self.call(f"cache.advance({count})", partial(leaf.advance, count))

    def _slots(self, index: int, leaf: Any) -> Slots:
        got = self.read("list(cache)", partial(slots_of, leaf))
        return Slots(list(self.slots[index]), plain(got), list(self.lines))

    def slots_hold(self, step: PartsStep) -> None:
        """Fail unless all slots held what was assigned to them last, before a step and after it."""
        now = []
        for index, run in enumerate(self.runs):
            if run is None:
                with self.inside(index) as leaf:
                    now.append(self._slots(index, leaf))
        for slots in [*step.slots, *now]:
            if slots.got != plain(slots.held):
                self._other_slots(slots)

    def _other_slots(self, slots: Slots) -> NoReturn:
        self.lines[:] = slots.lines
        held, got = slots.held, slots.got
        if len(got) != len(held):
            self.fail(
                "the number of slots is another",
                expected=str(len(held)),
                observed=str(len(got)),
                code=[f"assert len(list(cache)) == {len(held)}, list(cache)"],
            )
        slot = next(i for i, one in enumerate(got) if one != plain(held[i]))
        wanted = _shown(held[slot])
        self.fail(
            f"slot {slot} does not hold what was assigned to it last",
            expected=wanted,
            observed=str(got[slot]),
            code=[
                f"assert cache[{slot}] is None, cache[{slot}]"
                if held[slot] is None
                else f"assert cache[{slot}] is not None and mx.array_equal(cache[{slot}], {wanted})"
            ],
        )

    # -- observing ----------------------------------------------------------------------------

    def _readings(self, state: bool, masks: bool) -> dict[str, Any]:
        seen = super()._readings(state, masks)
        for index, run in enumerate(self.runs):
            path = f"cache{self.parts[index].path}"
            with self.inside(index) as leaf:
                if run is None:
                    inner = {f"list({path})": guarded(partial(_plain_slots, leaf))}
                else:
                    found = run._readings(False, masks)
                    inner = {path + name.removeprefix("cache"): found[name] for name in found}
            seen |= inner
        return seen


def _plain_slots(leaf: Any) -> Any:
    return plain(slots_of(leaf))


def _shown(array: mx.array | None) -> str:
    if array is None:
        return "None"
    return f"mx.full({array.shape}, {array.flatten()[0].item()})"
