"""Ragged decode steps: one token of each of several requests, whose caches differ in length.

Each cache of each request is a run of its own, with its own log; the program is that of the
subject, the layout or the cache under test.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from conformance import target as targets
from conformance.attention import dense_attention
from conformance.engine import NotApplicable
from conformance.helpers import ragged_step
from conformance.program import listed
from conformance.subject import Profile, examine, subjects_from_target
from conformance.tags import Dims, to_numpy
from conformance.trace import Ask, Run, Step, Violation
from kvproto.visibility import Full, SlidingWindow

DIMS = Dims(batch=1, heads=3, key_dim=8, value_dim=8)
APART = 50
"""Numbers of tokens of one request; the next one has other tokens."""


@dataclass
class Layer:
    """One layer: None for the profile of an auxiliary one."""

    profile: Profile | None
    window: int | None = None


def why_not(profile: Profile) -> str | None:
    """Why a cache takes no part in such a step."""
    missing = {"write_token", "get_kv", "offset"} - profile.capabilities.members
    if missing or not profile.capabilities.storage_backed:
        return f"has no {min(missing, default='update_and_fetch')}"
    if profile.capabilities.quantized or profile.capabilities.opaque:
        return "returns no plain keys and values, which could be padded"
    if not isinstance(profile.claims.visibility, (Full, SlidingWindow)):
        return f"is {profile.claims.visibility}: a step masks nothing but the padding"
    return None


def window_of(profile: Profile) -> int | None:
    visibility = profile.claims.visibility
    return visibility.window if isinstance(visibility, SlidingWindow) else None


def claimed(profile: Profile) -> list[Profile]:
    """The caches that the steps of a layout are tried with.

    Raises:
        NotApplicable: one of them cannot take part.
    """
    found = []
    for text in profile.claims.stores:
        (subject,) = subjects_from_target(text, directory=Path.cwd())
        found.append(examine(subject))
        reason = why_not(found[-1])
        if reason:
            raise NotApplicable(f"the claim stores names {text}, which {reason}")
    return found


@dataclass
class Maker:
    """What makes decode steps over a layout."""

    imports: list[str]
    called: str
    function: Callable[..., Any]
    is_method: bool = False

    def __call__(self, layout: Any, caches: Sequence[Sequence[Any]], **options: Any) -> Any:
        arguments = (caches,) if self.is_method else (layout, caches)
        return self.function(*arguments, **options)

    def takes(self, name: str) -> bool:
        return name in inspect.signature(self.function).parameters


def maker(profile: Profile, layout: Any) -> Maker:
    """How a layout's decode steps are made.

    Raises:
        NotApplicable: it makes none, and no other maker was claimed.
    """
    named = profile.claims.batched_decode
    if named:
        parsed = targets.parse(named)
        found = targets.load_object(parsed, Path.cwd())
        return Maker(list(parsed.imports), f"{parsed.name}(layout, caches", found)
    if "batched_decode" in profile.capabilities.members:
        method = layout.batched_decode
        return Maker([], "layout.batched_decode(caches", method, is_method=True)
    raise NotApplicable(
        "makes no decode steps (no batched_decode; claim batched_decode='mod:Name')"
    )


class Requests:
    """Requests in flight: for each of them, and each layer, a cache that was fed its prompt."""

    def __init__(
        self,
        driver: Run,
        layers: Sequence[Layer],
        lengths: Sequence[int],
        *,
        dims: Dims = DIMS,
        blames: bool,
    ) -> None:
        self.driver = driver
        self.layers = layers
        self.dims = driver.dims = dims
        self.runs: list[list[Run | None]] = []
        driver.imports += [
            line
            for layer in layers
            if layer.profile is not None
            for line in layer.profile.subject.imports
            if line not in [*driver.imports, *driver.profile.subject.imports]
        ]
        driver.imports = list(dict.fromkeys(driver.imports))
        calls = [one.profile.subject.call or "..." if one.profile else "None" for one in layers]
        row = f"[{', '.join(calls)}]"
        driver.lines.append(f"caches = [{', '.join([row] * len(lengths))}]")
        for index, length in enumerate(lengths):
            runs = [Run(one.profile, dims, masks=False) if one.profile else None for one in layers]
            self.runs.append(runs)
            for layer, run in enumerate(runs):
                if run is None:
                    continue
                run.log._next = APART * index
                ids = run.log.append(length)
                line = f"caches[{index}][{layer}].update_and_fetch(*tokens({listed(ids)}))"
                try:
                    driver.call(line, partial(run.cache.update_and_fetch, *run.tokens(ids)))
                except Violation as error:
                    if blames:
                        raise
                    name = run.profile.subject.target
                    raise NotApplicable(f"{name} cannot be fed: {error}") from error

    @property
    def caches(self) -> list[list[Any]]:
        return [[run and run.cache for run in runs] for runs in self.runs]

    def next_tokens(self, layer: int) -> tuple[list[Run], mx.array, mx.array]:
        """Log a token of each request in one layer: its runs, keys and values (B, H, 1, D)."""
        runs = [run for run in (row[layer] for row in self.runs) if run is not None]
        ids = [run.log.append(1) for run in runs]
        rows = [run.tokens(one) for run, one in zip(runs, ids, strict=True)]
        keys, values = (mx.concatenate([pair[which] for pair in rows]) for which in (0, 1))
        calls = ", ".join(f"tokens({one})" for one in ids)
        self.driver.lines.append(f"keys, values = (mx.concatenate(rows) for rows in zip({calls}))")
        return runs, keys, values

    def step(self, made: Any = None) -> None:
        """One decode step, judged row by row; without ``made``, which is named ``step`` in the
        program, it is the suite's own."""
        driver, batch = self.driver, len(self.runs)
        shape = batch, 2 * self.dims.heads, 1, self.dims.key_dim
        if made is not None:
            self._offsets(made)
        for layer, one in enumerate(self.layers):
            if one.profile is None:
                continue
            runs, keys, values = self.next_tokens(layer)
            waves = mx.sin(mx.arange(math.prod(shape))).reshape(shape)
            queries = (waves / 64).astype(keys.dtype)
            driver.lines += [
                f"queries = mx.sin(mx.arange({math.prod(shape)})).reshape{shape}",
                "queries = (queries / 64).astype(keys.dtype)",
            ]
            if made is None:
                caches = [run.cache for run in runs]
                out = driver.call(
                    f"out = ragged_step([one[{layer}] for one in caches], "
                    f"queries, keys, values, {one.window})",
                    lambda: ragged_step(caches, queries, keys, values, one.window),  # noqa: B023
                )
            else:
                out = driver.call(
                    f"out = step.attend({layer}, queries, keys, values, scale=1.0)",
                    lambda: made.attend(layer, queries, keys, values, scale=1.0),  # noqa: B023
                )
            self._judge(layer, one, runs, queries, out)

    def _offsets(self, made: Any) -> None:
        expected = [next(run.log.length for run in runs if run is not None) for runs in self.runs]
        got = self.driver.read("step.offsets", lambda: made.offsets)
        if not isinstance(got, mx.array) or got.tolist() != expected:
            self.driver.fail(
                "the positions of a decode step are not the lengths of its requests",
                expected=f"mx.array {expected}",
                observed=str(got.tolist() if isinstance(got, mx.array) else got),
                code=[f"assert step.offsets.tolist() == {expected}, step.offsets"],
            )

    def _judge(
        self, layer: int, one: Layer, runs: Sequence[Run], queries: mx.array, out: Any
    ) -> None:
        """Fail unless each row of the output is dense attention over that request's own log."""
        wanted = (*queries.shape[:3], self.dims.value_dim)
        if not isinstance(out, mx.array) or out.shape != wanted:
            self.driver.fail(
                "a decode step gives no row for each request",
                expected=f"an array of shape {wanted}",
                observed=str(getattr(out, "shape", out)),
                code=[f"assert out.shape == {wanted}, out.shape"],
            )
        got = to_numpy(out)
        for row, run in enumerate(runs):
            start = run.log.length - 1
            ids = list(run.log.ids)
            ask = Ask(1, one.window)
            step = Step(run, ask, start, ids, None, None, None, None, index=0, reads=False)
            query = to_numpy(queries)[row : row + 1]
            expected, bound = dense_attention(step, query, 1.0)
            off = np.abs(got[row : row + 1] - expected)
            if (off <= bound).all():  # False for NaN
                continue
            _, head, _, element = np.unravel_index(int(np.argmax(off - bound)), off.shape)
            worst = 0, head, 0, element
            self.driver.fail(
                f"layer {layer} of request {row}, which has {len(ids)} tokens, gets other "
                f"attention than alone ({step.visibility})",
                expected=f"{expected[worst]:.4f} within {bound[worst]:.1g}",
                observed=f"{got[row, head, 0, element]:.4f}",
                code=[
                    f"got = out[{row}, {head}, 0, {element}].item()",
                    f"assert abs(got - {expected[worst]:.6f}) <= {bound[worst]:.2g}, got",
                ],
            )
