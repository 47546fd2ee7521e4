"""Checks of the layout contract: the kinds and indices of the layers of drawn models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.engine import Context, NotApplicable, check
from conformance.trace import Run

ARGUMENTS = ("layers", "attention_attrs", "layer_window_sizes")
"""What a constructor must take to be tried with other models."""

ATTENTION = "self_attn"


@dataclass(frozen=True)
class Model:
    """The layers of a model: for each whether it is an attention layer, and its window."""

    attention: tuple[bool, ...]
    windows: Mapping[int, int]

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
    if not is_constructed(ctx):
        raise NotApplicable(f"its constructor does not take {', '.join(ARGUMENTS)}")

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
