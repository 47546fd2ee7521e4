"""What several checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.subject import Profile
from conformance.tags import FloatArray
from conformance.trace import Ask, Operation, Run, Snapshot, Step, plain, seen_violation
from kvproto.visibility import Full, Lossy, SlidingWindow


def data_free(profile: Profile) -> bool:
    return profile.capabilities.data_free is not None


class Held:
    """Objects that a caller keeps while the cache goes on, and what they read then."""

    def __init__(self, run: Run, what: str) -> None:
        self.run = run
        self.what = what
        self._held: list[tuple[Any, Any]] = []

    def keep(self, expression: str, value: Any) -> None:
        """Hold an object; the program holds it too, with a copy of its arrays."""
        index = len(self._held)
        self.run.lines += [
            f"held_{index} = {expression}",
            f"then_{index} = [mx.array(a) for a in arrays(held_{index})]",
        ]
        self._held.append((value, plain(value)))

    def check(self) -> None:
        """Fail if any of them changed."""
        for index, (value, before) in enumerate(self._held):
            now = plain(value)
            if now == before:
                continue
            expected, observed = _first_difference(before, now)
            self.run.fail(
                f"{self.what} changed",
                expected=f"{expected}, as it was when it was handed out",
                observed=observed,
                code=[
                    f"for then, now in zip(then_{index}, arrays(held_{index})):",
                    "    assert mx.array_equal(then, now), (then, now)",
                ],
            )


def _first_difference(before: Any, now: Any) -> tuple[str, str]:
    """The innermost parts in which two plain values differ; of keys and values, one row."""
    if isinstance(before, (tuple, list)) and isinstance(now, (tuple, list)):
        for one, other in zip(before, now, strict=False):
            if one != other:
                return _first_difference(one, other)
    if isinstance(before, Snapshot) and isinstance(now, Snapshot) and before.rows.ndim == 4:
        same_shape = before.rows.shape == now.rows.shape
        if same_shape and "float" in before.dtype and before.rows.shape[-1] > 1:
            where = np.argwhere((before.rows != now.rows).any(axis=-1))[0]
            return _row(before.rows[tuple(where)]), _row(now.rows[tuple(where)])
    return _short(before), _short(now)


def _row(row: FloatArray) -> str:
    return f"the row of token {row[0]:g}" if row.any() else "an unused row"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_its_layer_asks(profile: Profile, operations: Sequence[Operation]) -> list[Operation]:
    """The same trace, as a layer of the declared kind takes it: a windowed one always passes its
    window, for it may refuse, or serve as full context, a mask that was asked without (WIN-4)."""
    visibility = profile.claims.visibility
    if not isinstance(visibility, SlidingWindow):
        return list(operations)
    return [
        replace(operation, window_size=operation.window_size or visibility.window)
        if isinstance(operation, Ask)
        else operation
        for operation in operations
    ]


def compare_seen(step: Step) -> None:
    """Fail unless every query of a step sees exactly the tokens that it must (MASK-3)."""
    run = step.run
    visibility = step.visibility
    for row in range(run.dims.batch):
        for query, column in enumerate(step.columns):
            if run.log.is_padding(row, column):
                continue  # nobody reads what a padding query attends to
            expected = step.visible(row, query)
            if isinstance(visibility, Lossy):
                _own_past(step, row, query, expected)
            elif sorted(step.seen(row, query)) != expected and not _serves_full_context(
                step, row, query
            ):
                seen_violation(step, row, query, expected)


def _own_past(step: Step, row: int, query: int, past: Sequence[int]) -> None:
    """Fail unless a query sees itself and else only its past; each head may keep other tokens."""
    own = step.ids[step.columns[query]]
    for head in step.heads:
        seen = step.seen(row, query, head or 0)
        if own not in seen or not set(seen) <= set(past):
            allowed = {number for number in past if number in seen}
            seen_violation(step, row, query, sorted({*allowed, own}), head)


def _serves_full_context(step: Step, row: int, query: int) -> bool:
    """Whether a windowed cache that was asked for full context gave it, as WIN-4 allows.

    It may, while nothing was dropped, if it refuses once it cannot. One that gives full context
    first and its window later shows the same query other tokens at other chunkings.
    """
    run, declared = step.run, step.run.profile.claims.visibility
    if step.ask.window_size is not None or not isinstance(declared, SlidingWindow):
        return False
    if not run.has_mask:
        return False
    if sorted(step.seen(row, query)) != step.visible(row, query, Full()):
        return False
    beyond = Ask(declared.window + 1)
    if run.log.length + beyond.count <= declared.window:
        return False
    try:
        run.ask_mask(beyond)
    except (RuntimeError, ValueError):
        return True
    return False


def needed_columns(step: Step, row: int) -> list[int]:
    """The columns that an append must return because some query must see them, in order.

    A cache that evicts may do so before it returns. That a query of a long append does not see
    itself then is a matter of its mask (MASK-3, MASK-4).
    """
    if isinstance(step.visibility, Lossy):
        return list(step.columns)[-1:]
    first = step.run.log.visible(row, step.start, step.visibility)
    padding = step.run.log.left_padding[row]
    return sorted({*first, *(column for column in step.columns if column >= padding)})
