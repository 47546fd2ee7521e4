"""Checks of the layout contract: the kinds and indices of the layers of drawn models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from conformance import target as targets
from conformance.checks.pool import read
from conformance.decoding import Layer, Requests, claimed, maker, window_of
from conformance.engine import Context, NotApplicable, check
from conformance.tags import KEYS, VALUES, Dims
from conformance.trace import Run

ARGUMENTS = ("layers", "attention_attrs", "layer_window_sizes")
"""What a constructor must take to be tried with other models."""

ATTENTION = "self_attn"


@dataclass(frozen=True)
class Model:
    """The layers of a model: for each whether it is an attention layer, and its window."""

    attention: tuple[bool, ...]
    windows: Mapping[int, int]

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> Model:
        """The model whose layers these caches serve."""
        return cls(
            tuple(one.profile is not None for one in layers),
            {index: one.window for index, one in enumerate(layers) if one.window},
        )

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "layers": list(range(len(self.attention))),
            "attention_attrs": [ATTENTION if one else None for one in self.attention],
            "layer_window_sizes": dict(self.windows),
        }

    @property
    def layers(self) -> list[int]:
        """The attention layers."""
        return [layer for layer, one in enumerate(self.attention) if one]

    @property
    def full(self) -> list[int]:
        return [layer for layer in self.layers if layer not in self.windows]


def models(*, attention: bool) -> st.SearchStrategy[Model]:
    """Models of up to 8 layers; with ``attention`` one of them at least is an attention layer."""
    kinds = st.lists(st.sampled_from(("auxiliary", "full", "windowed")), max_size=8)
    if attention:
        kinds = kinds.filter(lambda drawn: set(drawn) != {"auxiliary"} and bool(drawn))
    return kinds.map(
        lambda drawn: Model(
            tuple(kind != "auxiliary" for kind in drawn),
            {layer: 4 + layer for layer, kind in enumerate(drawn) if kind == "windowed"},
        )
    )


def is_constructed(ctx: Context) -> bool:
    """Whether layouts of other models can be made."""
    return all(ctx.profile.subject.parameter((name,)) for name in ARGUMENTS)


def constructed(ctx: Context) -> None:
    """Raise :class:`NotApplicable` unless layouts of other models can be made."""
    if not is_constructed(ctx):
        raise NotApplicable(f"its constructor does not take {', '.join(ARGUMENTS)}")


def construction(ctx: Context, arguments: Mapping[str, Any]) -> str:
    name = (ctx.profile.subject.call or "...").partition("(")[0]
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def layout_of(ctx: Context, model: Model) -> tuple[Run, Any]:
    """A run, and the layout of a model."""
    run = ctx.run()
    line = f"layout = {construction(ctx, model.arguments)}"
    made = run.call(line, lambda: ctx.profile.subject.construct(**model.arguments))
    return run, made


def is_(run: Run, what: str, got: Any, expected: Any, shown: str = "") -> None:
    """Fail unless what the layout answers, written ``what``, is what the model gives."""
    if got != expected:
        run.fail(
            f"{what} is not that of the layers",
            expected=f"{expected}",
            observed=f"{got}",
            code=[f"assert {shown or what} == {expected!r}, {what}"],
        )


def indices(run: Run, layout: Any, name: str) -> list[int]:
    return list(run.read(f"layout.{name}", lambda: getattr(layout, name)))


def mapping(run: Run, layout: Any, name: str) -> dict[int, int]:
    return dict(run.read(f"layout.{name}", lambda: getattr(layout, name)))


def numbered(layers: Sequence[int]) -> dict[int, int]:
    return {layer: index for index, layer in enumerate(layers)}


@check("LAY-1")
def needs_one_entry_a_layer(ctx: Context) -> None:
    constructed(ctx)

    def test(drawn: tuple[Model, int]) -> None:
        model, layers = drawn
        entries = len(model.attention)
        if layers == entries:
            return
        arguments = model.arguments | {"layers": list(range(layers))}
        run = ctx.run()
        error = run.attempt(
            f"layout = {construction(ctx, arguments)}",
            lambda: ctx.profile.subject.construct(**arguments),
        )
        told = str(error) if isinstance(error, ValueError) else ""
        if not {str(layers), str(entries)} <= {part.strip(".,:;()") for part in told.split()}:
            run.fail(
                f"{layers} layers and {entries} entries are not refused with both counts",
                expected=f"ValueError: ... {layers} ... {entries}",
                observed="a layout" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no ValueError with both counts')"],
            )

    ctx.for_all(st.tuples(models(attention=False), st.integers(0, 8)), test)


@check("LAY-2")
def layers_are_partitioned(ctx: Context) -> None:
    def sound(run: Run, layout: Any) -> None:
        """What holds whatever the model is."""
        count = run.read("layout.num_layers", lambda: layout.num_layers)
        attention = indices(run, layout, "attention_layer_indices")
        auxiliary = indices(run, layout, "auxiliary_layer_indices")
        both = "sorted([*layout.attention_layer_indices, *layout.auxiliary_layer_indices])"
        is_(run, both, sorted([*attention, *auxiliary]), list(range(count)))
        for name, layers in (("attention", attention), ("auxiliary", auxiliary)):
            shown = f"layout.{name}_layer_indices"
            is_(run, shown, layers, sorted(layers), f"list({shown})")
        full = [
            layer
            for layer in attention
            if run.read(f"layout.window_size({layer})", lambda x=layer: layout.window_size(x))  # type: ignore[misc]
            is None
        ]
        for name, layers in (("attention_pool", attention), ("full_kv_pool", full)):
            shown = f"layout.{name}_index_by_layer"
            found = mapping(run, layout, f"{name}_index_by_layer")
            is_(run, shown, found, numbered(layers), f"dict({shown})")
            look_up = getattr(layout, f"{name}_index")
            for layer, index in numbered(layers).items():
                line = f"layout.{name}_index({layer})"
                is_(run, line, run.read(line, lambda f=look_up, x=layer: f(x)), index)  # type: ignore[misc]

    if not is_constructed(ctx):
        run = ctx.run()
        ctx.tried += 1
        sound(run, run.cache)
        return

    def test(model: Model) -> None:
        run, layout = layout_of(ctx, model)
        sound(run, layout)
        shown = "layout.attention_layer_indices"
        got = indices(run, layout, "attention_layer_indices")
        is_(run, shown, got, model.layers, f"list({shown})")
        for layer in range(len(model.attention)):
            line = f"layout.window_size({layer})"
            got_window = run.read(line, lambda x=layer: layout.window_size(x))  # type: ignore[misc]
            is_(run, line, got_window, model.windows.get(layer))
        if model.layers:
            line = "layout.first_attention_layer_index"
            first = run.read(line, lambda: layout.first_attention_layer_index)
            is_(run, line, first, model.layers[0])

    ctx.for_all(models(attention=True), test)


@check("LAY-3", needs=("LAY-2",))
def wrong_kinds_are_refused(ctx: Context) -> None:
    def names_the_layer(run: Run, layout: Any) -> None:
        count = layout.num_layers
        for name in ("attention_pool", "full_kv_pool"):
            known = mapping(run, layout, f"{name}_index_by_layer")
            look_up = getattr(layout, f"{name}_index")
            for layer in [*(set(range(count)) - set(known)), count, count + 7, -1]:
                lines = len(run.lines)
                error = run.attempt(
                    f"layout.{name}_index({layer})",
                    lambda f=look_up, x=layer: f(x),  # type: ignore[misc]
                )
                if not isinstance(error, KeyError) or str(layer) not in str(error):
                    run.fail(
                        f"{name}_index of layer {layer}, which has none, is not refused by name",
                        expected=f"KeyError: ... {layer} ...",
                        observed="an index"
                        if error is None
                        else f"{type(error).__name__}: {error}",
                        code=[f"raise AssertionError('no KeyError that names layer {layer}')"],
                    )
                del run.lines[lines:]

    if not is_constructed(ctx):
        run = ctx.run()
        ctx.tried += 1
        names_the_layer(run, run.cache)
        return

    def test(model: Model) -> None:
        names_the_layer(*layout_of(ctx, model))

    ctx.for_all(models(attention=True), test, fraction=0.5)

    def without_attention(layers: int) -> None:
        arguments = Model((False,) * layers, {}).arguments
        run = ctx.run()
        error = run.attempt(
            f"{construction(ctx, arguments)}.first_attention_layer_index",
            lambda: ctx.profile.subject.construct(**arguments).first_attention_layer_index,
        )
        if not isinstance(error, RuntimeError) or "attention" not in str(error):
            run.fail(
                "a model without attention layers has a first one",
                expected="RuntimeError: ... no attention layers",
                observed="an index" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no RuntimeError that tells of attention')"],
            )

    ctx.for_each((1, 3), without_attention)


MAP = "pool_index_by_layer"
POOL = targets.parse("reference_impl:KVPool")
SLOTS = 24
HALF = Dims(batch=1, heads=3, key_dim=8, value_dim=8, dtype="float16")
"""What the pool is made for."""


@check("LAY-4", needs=("LAY-2",))
def pool_has_its_own_indices(ctx: Context) -> None:
    constructed(ctx)
    make = maker(ctx.profile, ctx.profile.subject.factory())
    if not (make.takes("pool") and make.takes("slots")):
        raise NotApplicable("its decode steps write to no pool (they take no pool and slots)")
    some = [Layer(profile, window_of(profile)) for profile in claimed(ctx.profile)]

    def begun(layers: list[Layer], lengths: list[int]) -> tuple[Run, Any, Any, Requests]:
        run, layout = layout_of(ctx, Model.of(layers))
        run.imports += [*maker(ctx.profile, layout).imports, *POOL.imports]
        requests = Requests(run, layers, lengths, dims=HALF, blames=False)
        full = sum(one.profile is not None and one.window is None for one in layers)
        sizes = SLOTS, full, HALF.heads, HALF.key_dim
        run.lines.append(f"pool = {POOL.name}{sizes}")
        return run, layout, targets.load_object(POOL, Path.cwd())(*sizes), requests

    def options(run: Run, layout: Any, **changes: Any) -> tuple[dict[str, Any], str]:
        given: dict[str, Any] = {}
        if maker(ctx.profile, layout).takes(MAP):
            given[MAP] = dict(layout.full_kv_pool_index_by_layer)
        given |= changes
        return given, "".join(f", {name}={value!r}" for name, value in given.items())

    def test(drawn: tuple[list[Layer], list[int]]) -> None:
        layers, lengths = drawn
        run, layout, pool, requests = begun(layers, lengths)
        slots = list(range(len(lengths), 0, -1))
        given, shown = options(run, layout, slots=slots)
        make = maker(ctx.profile, layout)
        step = run.call(
            f"step = {make.called}, pool=pool{shown})",
            lambda: make(layout, requests.caches, pool=pool, **given),
        )
        requests.step(step)
        index = 0
        for layer, one in enumerate(layers):
            if one.profile is None or one.window is not None:
                continue
            ids = [runs[layer].log.ids[-1] for runs in requests.runs]  # type: ignore[union-attr]
            found = read(run, pool, index, slots)
            for salt, rows in zip((KEYS, VALUES), found, strict=True):
                wanted = run.expected_rows(ids, salt)[0].transpose(1, 0, 2)
                if (rows != wanted).any():
                    run.fail(
                        f"the tokens of layer {layer} are not in buffer {index} of the pool",
                        expected=f"tokens {ids} in slots {slots}",
                        observed=f"rows that begin with {rows[:, 0, 0].tolist()}",
                        code=[
                            "got = [int(row[0, 0].item()) for row in keys]",
                            f"assert got == {ids}, got",
                        ],
                    )
            index += 1

    def refused(layers: list[Layer]) -> None:
        run, layout, pool, requests = begun(layers, [2, 3])
        make = maker(ctx.profile, layout)
        given, shown = options(run, layout, slots=[1, 2], **{MAP: {}})
        error = run.attempt(
            f"{make.called}, pool=pool{shown})",
            lambda: make(layout, requests.caches, pool=pool, **given),
        )
        if not isinstance(error, ValueError):
            run.fail(
                "a decode step writes to a pool without the map of pool indices",
                expected="ValueError",
                observed="a step" if error is None else f"{type(error).__name__}: {error}",
                code=["raise AssertionError('no ValueError')"],
            )

    full = [one for one in some if one.window is None]
    if not full:
        raise NotApplicable("the claim stores names no cache of full attention")
    kinds = st.lists(st.sampled_from([Layer(None), *some]), max_size=3)
    layers = st.tuples(kinds, st.sampled_from(full), kinds).map(lambda d: [*d[0], d[1], *d[2]])
    lengths = st.lists(st.integers(1, 12), min_size=1, max_size=3)
    ctx.for_all(st.tuples(layers, lengths), test, fraction=0.5)
    if make.takes(MAP):
        ctx.for_each([[*some, *full]], refused)
