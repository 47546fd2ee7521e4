"""Checks of the prompt contract: what handles the list of layer caches.

The layers are runs on caches of the claimed targets, all fed the same tokens, so that what comes
back is judged as any cache is: by going on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.checks.copying import fork
from conformance.checks.whole import whole
from conformance.engine import Context, NotApplicable, check
from conformance.program import listed
from conformance.subject import Profile, examine, subjects_from_target
from conformance.tags import Dims
from conformance.trace import Ask, EndOfTrace, Run, Violation, plain

FED = ((10,), (2, 1, 1), (7, 1, 1, 1, 1, 1, 1))
"""Numbers of tokens in each append: a prefill, a short prompt, one that ends in single tokens."""

DIMS = Dims(batch=1, heads=3, key_dim=32, value_dim=32)
"""What every kind of cache takes."""


@dataclass
class Layers:
    """A prompt: one run for each layer, and the run of what handles the list."""

    tool: Run
    runs: list[Run]

    @property
    def caches(self) -> list[Any]:
        return [run.cache for run in self.runs]

    def moved(self, caches: Sequence[Any], length: int) -> list[Run]:
        """The same layers with other caches, which stand after ``length`` tokens."""
        made = []
        for run, cache in zip(self.runs, caches, strict=True):
            other = fork(run, "", cache)
            other.log.trim(run.log.length - length)
            made.append(other)
        return made

    def fail(self, message: str, *, expected: str, observed: str, code: Sequence[str]) -> None:
        self.tool.fail(message, expected=expected, observed=observed, code=code)


def profiles(ctx: Context) -> list[Profile]:
    found = []
    for text in ctx.profile.claims.caches:
        (subject,) = subjects_from_target(text)
        found.append(examine(subject))
    return found


def prompt(ctx: Context, tool: Run, counts: Sequence[int], *, trimmable: bool = False) -> Layers:
    """Fresh caches of every claimed target, fed the same tokens.

    Args:
        trimmable: keep those only that can be trimmed then, for one that cannot forbids it to all.
    """
    runs = [Run(profile, DIMS) for profile in profiles(ctx)]
    for run in runs:
        tool.imports += [line for line in run.profile.subject.imports if line not in tool.imports]
    calls = ", ".join(run.profile.subject.call or "..." for run in runs)
    tool.lines.append(f"caches = [{calls}]")
    tool.dims = DIMS
    for count in counts:
        for index, run in enumerate(runs):
            try:
                step = run.step(Ask(count), evaluate=False)
            except (Violation, EndOfTrace) as error:
                name = run.profile.subject.target
                raise NotApplicable(f"{name} cannot be fed: {error}") from error
            start, end = step.start, run.log.length
            tool.lines.append(
                f"caches[{index}].offset = {end}"
                if run.virtual
                else f"caches[{index}].update_and_fetch(*tokens({listed(range(start, end))}))"
            )
    if trimmable:
        kept = [i for i, run in enumerate(runs) if is_trimmable(run.cache)]
        tool.lines.append(f"caches = [caches[i] for i in {kept}]")
        runs = [runs[i] for i in kept]
    return Layers(tool, runs)


def is_trimmable(cache: Any) -> bool:
    try:
        return bool(cache.is_trimmable())
    except Exception:
        return False


def stands(layers: Layers, caches: Sequence[Any], length: int, what: str, names: str) -> None:
    """Fail unless every cache stands after the first ``length`` tokens, and goes on there."""
    runs = layers.moved(caches, length)
    for index, run in enumerate(runs):
        name = f"{names}[{index}]"
        if "offset" not in run.profile.capabilities.members:
            continue
        got = run.offset_value()
        expected = run.log.offsets[0] if not run.virtual else length
        if plain(got) != expected:
            layers.fail(
                f"{what} gives a {type(run.cache).__name__} at another offset",
                expected=f"offset {expected}",
                observed=f"offset {got}",
                code=[f"assert {name}.offset == {expected}, [c.offset for c in {names}]"],
            )
    for index, run in enumerate(runs):
        try:
            for count in (2, 1):
                step = run.step(Ask(count))
                whole(step) if not run.virtual else None
        except Violation as violation:
            layers.fail(
                f"{what} gives a {type(run.cache).__name__} that is not in the state after "
                f"{length} tokens: {violation.message}",
                expected=violation.expected,
                observed=violation.observed,
                code=[
                    f"print({names}[{index}].state)",
                    "raise AssertionError('another state')",
                ],
            )


def offsets(caches: Sequence[Any]) -> list[Any]:
    """The offsets of those caches that have one, as plain numbers."""
    return [plain(cache.offset) for cache in caches if hasattr(cache, "offset")]


def agree(tool: Run, caches: Sequence[Any], what: str, names: str) -> None:
    found = offsets(caches)
    if any(offset != found[0] for offset in found):
        tool.fail(
            f"after {what} the layers are at different offsets",
            expected="one offset",
            observed=str(found),
            code=[
                f"offsets = {{c.offset for c in {names} if hasattr(c, 'offset')}}",
                "assert len(offsets) == 1, offsets",
            ],
        )


def lacks(*names: str) -> Callable[[Profile], str | None]:
    def skip(profile: Profile) -> str | None:
        missing = [name for name in names if name not in profile.capabilities.members]
        return f"has no {' and no '.join(missing)}" if missing else None

    return skip


def trim(layers: Layers, count: int) -> int:
    line = f"trimmed = store.trim_prompt(caches, {count})"
    return int(
        layers.tool.call(line, lambda: layers.tool.cache.trim_prompt(layers.caches, count)) or 0
    )


def through_a_file(layers: Layers, metadata: dict[str, str]) -> tuple[list[Any], Any]:
    tool = layers.tool
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "prompt.safetensors")
        tool.imports += [line for line in ("import tempfile",) if line not in tool.imports]
        tool.lines.append("path = tempfile.mkdtemp() + '/prompt.safetensors'")
        saved = f"store.save(path, caches, {metadata})"
        tool.call(saved, lambda: tool.cache.save(path, layers.caches, metadata))
        loaded = tool.call("loaded, metadata = store.load(path)", lambda: tool.cache.load(path))
    return list(loaded[0]), loaded[1]


def fetched(layers: Layers, tokens: Sequence[int]) -> tuple[list[Any] | None, list[int]]:
    tool = layers.tool
    line = f"fetched, rest = store.fetch({listed(tokens)})"
    caches, rest = tool.call(line, lambda: tool.cache.fetch(list(tokens)))
    return (list(caches) if caches is not None else None), list(rest)


def wanted(length: int) -> list[list[int]]:
    """Prompts that share tokens with one of ``length`` in every way."""
    stored = list(range(length))
    return [
        [*stored, 1000],
        [*stored, 1000, 1001],
        stored,
        stored[:-1],
        [*stored[:-1], 1000],
        [*stored[: length // 3], 1000, 1001, 1002],
        [*stored[:1], 1000],
        [1000, 1001],
    ]


@check("PROMPT-1")
def layers_stay_together(ctx: Context) -> None:
    has = ctx.profile.capabilities.members

    def test(counts: tuple[int, ...]) -> None:
        if "trim_prompt" in has:
            for trimmable in (True, False):
                layers = prompt(ctx, ctx.run(), counts, trimmable=trimmable)
                for count in (1, 6):
                    trim(layers, count)
                    agree(layers.tool, layers.caches, f"trim_prompt({count})", "caches")
        if {"save", "load"} <= has:
            layers = prompt(ctx, ctx.run(), counts)
            agree(layers.tool, through_a_file(layers, {})[0], "a file", "loaded")
        if {"insert", "fetch"} <= has:
            layers = prompt(ctx, ctx.run(), counts)
            stored = list(range(sum(counts)))
            insert(layers, stored)
            for tokens in wanted(len(stored)):
                caches, _ = fetched(layers, tokens)
                if caches is not None:
                    agree(layers.tool, caches, "fetch", "fetched")

    ctx.for_each(FED, test)


@check("PROMPT-2", skip=lacks("trim_prompt"))
def all_are_trimmed_or_none(ctx: Context) -> None:
    def test(case: tuple[tuple[int, ...], int, bool]) -> None:
        counts, count, trimmable = case
        layers = prompt(ctx, ctx.run(), counts, trimmable=trimmable)
        fed = sum(counts)
        removed = trim(layers, count)
        if not 0 <= removed <= min(count, fed):
            layers.fail(
                f"trim_prompt({count}) of {fed} tokens returns {removed}",
                expected=f"0 to {min(count, fed)}",
                observed=str(removed),
                code=[f"assert 0 <= trimmed <= {min(count, fed)}, trimmed"],
            )
        stands(layers, layers.caches, fed - removed, f"trim_prompt({count})", "caches")

    trims = [(counts, count, True) for counts in FED for count in (0, 1, 6, 40)]
    ctx.for_each([*trims, (FED[0], 1, False)], test)


@check("PROMPT-3", skip=lacks("save", "load"))
def files_keep_every_layer(ctx: Context) -> None:
    def test(counts: tuple[int, ...]) -> None:
        layers = prompt(ctx, ctx.run(), counts)
        metadata = {"model": "tiny", "tokens": "0.1.2", "text": "ä \n{}"}
        loaded, got = through_a_file(layers, metadata)
        names = [type(cache).__name__ for cache in layers.caches]
        back = [type(cache).__name__ for cache in loaded]
        same = [type(cache) for cache in loaded] == [type(cache) for cache in layers.caches]
        if not same:
            layers.fail(
                f"{len(names)} caches were saved, and {len(back)} were loaded"
                if len(names) != len(back)
                else "caches of other classes are loaded than were saved",
                expected=", ".join(names),
                observed=", ".join(back),
                code=["assert [*map(type, loaded)] == [*map(type, caches)], loaded"],
            )
        if dict(got) != metadata:
            layers.fail(
                "the metadata of a file is not what was saved",
                expected=str(metadata),
                observed=str(got)[:80],
                code=[f"assert dict(metadata) == {metadata}, metadata"],
            )
        stands(layers, loaded, sum(counts), "a file", "loaded")

    ctx.for_each(FED, test)


def insert(layers: Layers, tokens: Sequence[int]) -> None:
    line = f"store.insert({listed(tokens)}, caches)"
    layers.tool.call(line, lambda: layers.tool.cache.insert(list(tokens), layers.caches))


@check("PROMPT-4", skip=lacks("insert", "fetch"))
def what_is_handed_out_stands_at_its_prefix(ctx: Context) -> None:
    def test(case: tuple[tuple[int, ...], bool]) -> None:
        counts, trimmable = case
        layers = prompt(ctx, ctx.run(), counts, trimmable=trimmable)
        stored = list(range(sum(counts)))
        insert(layers, stored)
        # Twice: what was handed out went on, and must not have changed what is stored.
        for tokens in wanted(len(stored)) * 2:
            caches, rest = fetched(layers, tokens)
            length = len(tokens) - len(rest)
            if rest != tokens[length:] or (caches is None and length):
                layers.fail(
                    "fetch returns another rest than the end of the tokens it was asked for",
                    expected=f"the end of {tokens}",
                    observed=str(rest),
                    code=[f"assert [*rest] == {tokens}[len({tokens}) - len(rest) :], rest"],
                )
            if caches is None:
                continue
            if length > len(stored) or tokens[:length] != stored[:length]:
                layers.fail(
                    "fetch serves tokens that were never stored",
                    expected=f"a prefix of {stored}",
                    observed=str(tokens[:length]),
                    code=["raise AssertionError(rest)"],
                )
            stands(layers, caches, length, "fetch", "fetched")

    ctx.for_each([(counts, trimmable) for counts in FED for trimmable in (True, False)], test)
