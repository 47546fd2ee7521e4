"""Subjects: a factory of fresh caches, and what the cache claims to be.

Claims are read from what a class declares (members, attributes, constructor arguments), never
from what it returns. Each claim carries where it came from, and can be overridden.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from conformance import target as targets
from conformance.limits import Interrupted, limited
from conformance.target import CannotBeTested, TargetError
from kvproto import Capabilities, capabilities
from kvproto.visibility import Chunk, Full, Sinks, SlidingWindow, Visibility, parse_visibility

WINDOW_NAMES = ("max_size", "window", "window_size", "sliding_window")
SINK_NAMES = ("keep", "sinks", "n_sinks", "num_sinks", "sink_size")
HEAD_NAMES = ("n_kv_heads", "num_kv_heads", "num_key_value_heads")
KEY_DIM_NAMES = ("head_dim", "k_head_dim", "key_head_dim", "key_dim")
VALUE_DIM_NAMES = ("v_head_dim", "value_head_dim", "value_dim")
SLOT_NAMES = ("slots", "pool_size", "num_slots", "n_slots")
POOL_LAYER_NAMES = ("layers", "num_layers", "n_layers")
START_NAMES = ("offset", "start", "start_offset", "prefix_len")

PROMPT_CACHES = (
    "reference_impl:KVCache()",
    "reference_impl:SlidingWindowKVCache(8)",
    "reference_impl:OffsetCache(0)",
    "reference_impl:ChunkedKVCache(4)",
    "reference_impl:QuantizedKVCache(32, 8)",
)
"""The caches of a prompt, named as a user would."""

_LARGEST_BOUNDARY = 4096


@dataclass(frozen=True)
class Claims:
    """What a cache says it is. Shapes are those that the tests may use."""

    visibility: Visibility = field(default_factory=Full)
    batch_sizes: tuple[int, ...] = (1, 2, 3)
    left_padding: tuple[int, ...] | None = None
    """Columns of padding of each row, for a cache that was constructed as a batch."""
    heads: int = 3
    head_dims: tuple[tuple[int, int], ...] = ((8, 12), (8, 8), (12, 8), (8, 0))
    """Pairs (Dk, Dv), the preferred one first."""
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    start: int = 0
    boundaries: tuple[int, ...] = ()
    """Numbers of tokens near which the cache may change its behaviour (growth, wrap)."""
    rewinds: bool = False
    """Whether the owner may lower ``offset`` in place of a trim."""
    captured: bool = False
    """Whether it is made for captured graphs, so that ``offset`` may be a 0-d array."""
    slots: int = 0
    """Rows of each layer of a pool, slot 0 included."""
    pool_layers: int = 1
    backed_cache: str = ""
    """Target of what makes the cache of a request over a pool, called with (pool, layer, slots,
    prefix_len); without one the pool's own method ``backed_cache`` is called."""
    caches: tuple[str, ...] = PROMPT_CACHES
    """Targets of the caches of a prompt, for what handles lists of caches."""
    stores: tuple[str, ...] = ("reference_impl:KVCache()", "reference_impl:SlidingWindowKVCache(8)")
    """Targets of the caches that a snapshot store, or a decode step of a layout, is tried with."""
    transaction: str = ""
    """Target of what makes a transaction, called with (caches, tokens, forward); without one the
    store's own method ``transaction`` is called."""
    batched_decode: str = ""
    """Target of what makes a decode step, called with (layout, caches) and, where it takes them,
    the keywords pool, slots and pool_index_by_layer; without one the layout's own method
    ``batched_decode`` is called."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each claim came from."""

    def source(self, name: str) -> str:
        return self.sources.get(name, "default")

    def with_(self, source: str, **changes: Any) -> Claims:
        """A copy with other claims, their source noted."""
        noted = {**self.sources, **dict.fromkeys(changes, source)}
        return replace(self, **changes, sources=noted)

    @property
    def lossy(self) -> bool:
        return str(self.visibility) == "lossy"


_OVERRIDABLE = tuple(f.name for f in fields(Claims) if f.name != "sources")


def apply_overrides(claims: Claims, overrides: Mapping[str, Any], source: str) -> Claims:
    """Claims with a person's own put in.

    Raises:
        TargetError: an unknown claim, or a value of the wrong form.
    """
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in _OVERRIDABLE:
            raise TargetError(f"There is no claim {name!r}; there are {', '.join(_OVERRIDABLE)}.")
        try:
            if name == "visibility" and isinstance(value, str):
                value = parse_visibility(value)
            elif name == "head_dims":
                value = tuple((int(key), int(val)) for key, val in value)
            elif isinstance(value, (list, tuple)):
                value = tuple(value)
        except (TypeError, ValueError) as error:
            raise TargetError(f"Claim {name} = {value!r}: {error}") from None
        changes[name] = value
    return claims.with_(source, **changes)


@dataclass(frozen=True)
class Subject:
    """A cache under test.

    Args:
        target: how it is called in reports.
        factory: makes a fresh, independent cache at each call.
        claims: overrides by name, as in ``{"visibility": "window(8)"}``.
        expected_failures: clause id -> reason (with a link); a clause that passes all the same is
            reported as a failure, so that the list cannot rot.
        imports, call: lines of Python and the expression that construct the cache in a printed
            counterexample; left out, the program has a line to fill in.
    """

    target: str
    factory: Callable[[], Any]
    claims: Mapping[str, Any] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    call: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments by parameter name; claims may be read from them."""
    constructor: Callable[..., Any] | None = None
    """What is called with them; lets a check construct the class with other arguments."""

    def parameter(self, names: Iterable[str]) -> str | None:
        """The first of these names that the constructor takes; None where it is not known."""
        if self.constructor is None:
            return None
        parameters = inspect.signature(self.constructor).parameters
        return next((name for name in names if name in parameters), None)

    def construct(self, **changes: Any) -> Any:
        """A cache made with other constructor arguments; whatever that raises."""
        assert self.constructor is not None
        bound = inspect.signature(self.constructor).bind_partial()
        bound.arguments.update({**self.arguments, **changes})
        return self.constructor(*bound.args, **bound.kwargs)


@dataclass(frozen=True)
class Profile:
    """A subject with everything that was read off it."""

    subject: Subject
    capabilities: Capabilities
    claims: Claims
    """What the tests may use: the declared claims, less what the cache refuses cleanly."""
    declared: Claims
    restores: bool = False
    """Whether it can be restored: from_state, or a state that can be assigned."""

    @property
    def is_pool(self) -> bool:
        """Whether it is shared storage by slot, not a cache."""
        return {"set_kv", "get_kv"} <= self.capabilities.members

    @property
    def handles_prompts(self) -> bool:
        """Whether it is no cache, but trims, saves or stores lists of caches."""
        has = self.capabilities.members
        return not has & {"offset", "state", "update_and_fetch"} and bool(
            "trim_prompt" in has or {"save", "load"} <= has or {"insert", "fetch"} <= has
        )

    @property
    def name(self) -> str:
        """What a printed program calls the object."""
        if self.is_pool:
            return "pool"
        if self.is_layout:
            return "layout"
        return "store" if self.handles_prompts or self.is_store else "cache"

    @property
    def is_store(self) -> bool:
        """Whether it keeps copies of caches, and is none itself."""
        has = self.capabilities.members
        return {"store_cache", "restore_cache"} <= has or "transaction" in has

    @property
    def is_layout(self) -> bool:
        """Whether it says which cache serves which layer, and is none itself."""
        return {"attention_layer_indices", "auxiliary_layer_indices"} <= self.capabilities.members

    @property
    def contracts(self) -> tuple[str, ...]:
        """Names of the contracts that apply, in the order of the spec."""
        has = self.capabilities.members
        names = []
        if "offset" in has and (self.capabilities.storage_backed or self.capabilities.data_free):
            names.append("position")
        if self.capabilities.storage_backed or self.capabilities.data_free:
            names.append("mask")
        if self.capabilities.storage_backed:
            names.append("update")
        stores = self.capabilities.storage_backed
        if self.capabilities.opaque:
            names.append("opaque")
        if "state" in has:
            names.append("state")
        carries = stores or bool(has & {"lengths", "advance", "caches"})
        if carries and self.restores:
            names.append("restore")
        if carries or self.is_pool:
            names.append("copying")
        if stores and has & {"is_trimmable", "trim"}:
            names.append("trim")
        if stores and has & {"size", "empty", "nbytes"}:
            names.append("measure")
        if stores and isinstance(self.claims.visibility, (SlidingWindow, Sinks, Chunk)):
            names.append("window")
        if stores and has & {"bits", "to_quantized"}:
            names.append("quantize")
        if stores and has & {"merge", "filter", "extract"}:
            names.append("batch")
        if "__getitem__" in has and has & {"lengths", "advance"}:
            names.append("recurrent")
        if "caches" in has:
            names.append("composite")
        if self.capabilities.data_free:
            names.append("data-free")
        if "keys_and_values" in has or {"keys", "values"} <= has:
            names.append("read-back")
        if (stores and has & {"write_token", "get_kv", "reset"}) or self.is_layout:
            names.append("decode")
        if self.is_pool:
            names.append("pool")
        if self.handles_prompts:
            names.append("prompt")
        if self.is_store:
            names.append("snapshot")
        if self.is_layout:
            names.append("layout")
        names.append("refuse")
        if stores:
            names.append("threads")
        return tuple(names)


@dataclass(frozen=True)
class Named:
    """A cache as a run was given it: the target, not imported yet, and what is claimed of it."""

    target: str
    directory: Path
    claims: Mapping[str, Any] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)

    def subjects(self) -> list[Subject]:
        """What it names, as :func:`subjects_from_target`."""
        return subjects_from_target(
            self.target,
            directory=self.directory,
            claims=self.claims,
            expected_failures=self.expected_failures,
        )


def subjects_from_target(
    text: str,
    *,
    directory: Path | None = None,
    claims: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> list[Subject]:
    """The subjects that a target names: one, or those of a ``Subject`` or a list of them.

    Raises:
        TargetError: the target cannot be used.
        CannotBeTested: what it names cannot be imported or made.
    """
    directory = directory or Path.cwd()
    parsed = targets.parse(text)
    found = targets.load_object(parsed, directory)
    overrides, expected = dict(claims or {}), dict(expected_failures or {})
    many = found if isinstance(found, (list, tuple)) else [found]
    if any(isinstance(one, Subject) for one in many):
        if parsed.arguments is not None:
            raise TargetError(f"{text!r} is a Subject; it takes no arguments.")
        wrong = [one for one in many if not isinstance(one, Subject)]
        if wrong:
            raise TargetError(f"{text!r}: expected a list of Subject only, got {wrong[0]!r}.")
        return [
            replace(
                one,
                claims={**one.claims, **overrides},
                expected_failures={**one.expected_failures, **expected},
            )
            for one in many
        ]
    factory = targets.make_factory(parsed, found)
    return [
        Subject(
            target=text,
            factory=factory,
            claims=overrides,
            expected_failures=expected,
            imports=tuple(parsed.imports),
            call=parsed.call,
            arguments=_bound_arguments(found, parsed.arguments or (), parsed.keywords),
            constructor=found,
        )
    ]


def subject_from_factory(
    factory: Callable[[], Any], *, name: str | None = None, **options: Any
) -> Subject:
    """A subject from a class or a function without arguments."""
    module = getattr(factory, "__module__", "")
    qualified = getattr(factory, "__qualname__", "")
    importable = bool(module and qualified) and "<" not in qualified and module != "__main__"
    top = qualified.partition(".")[0]
    return Subject(
        target=name or (f"{module}:{qualified}" if importable else qualified or repr(factory)),
        factory=factory,
        imports=(f"from {module} import {top}",) if importable else (),
        call=f"{qualified}()" if importable else None,
        **options,
    )


def _bound_arguments(
    found: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        bound = inspect.signature(found).bind(*arguments, **keywords)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def examine(subject: Subject) -> Profile:
    """Construct one cache and read its capabilities and claims.

    Raises:
        TargetError: a claim is none.
        CannotBeTested: the factory raises, or nothing can be inferred of what it makes.
    """
    step = "the factory"
    try:
        with limited():
            cache = subject.factory()
            step = "reading its members"
            found = capabilities(cache)
    except Interrupted:
        raise
    except BaseException as error:
        raise CannotBeTested(f"{subject.target}: {step} {targets.told(error)}") from error
    if isinstance(cache, (list, tuple)):
        raise CannotBeTested(
            f"{subject.target}: makes a {type(cache).__name__} of {len(cache)}, not one cache. "
            "Name a function that returns the cache of one layer."
        )
    named = {"offset", "state", "make_mask", "update_and_fetch", "__getitem__", "set_kv"}
    named |= {
        "trim_prompt",
        "load",
        "fetch",
        "store_cache",
        "transaction",
        "attention_layer_indices",
    }
    if not found.members & named:
        raise CannotBeTested(
            f"{subject.target}: nothing can be inferred of a {found.class_name}: it has none of "
            "offset, state, make_mask, update_and_fetch. Name the class of a layer cache, or a "
            "function that returns one."
        )
    claims = infer(cache, found, subject.arguments)
    claims = apply_overrides(claims, subject.claims, "claimed")
    restores = "from_state" in found.members or _has_settable_state(cache)
    return Profile(subject, found, claims, declared=claims, restores=restores)


def _has_settable_state(cache: Any) -> bool:
    stored = inspect.getattr_static(cache, "state", None)
    if isinstance(stored, property):
        return stored.fset is not None
    return stored is not None and not inspect.isroutine(stored)


def infer(cache: Any, found: Capabilities, arguments: Mapping[str, Any]) -> Claims:
    """Claims from what a fresh cache declares."""
    declared = _Declared(cache, arguments)
    claims = Claims()
    claims = _infer_visibility(claims, declared, found)
    claims = _infer_shapes(claims, declared, found)
    if "set_kv" in found.members:
        claims = _infer_pool(claims, declared)
    start, name = declared.integer(START_NAMES, least=1)
    if start is not None and name in arguments:
        claims = claims.with_(f"argument {name}", start=start)
    boundaries = tuple(sorted(set(declared.all_integers())))
    if boundaries:
        claims = claims.with_("integer attributes of the class", boundaries=boundaries)
    return claims


def _infer_visibility(claims: Claims, declared: _Declared, found: Capabilities) -> Claims:
    if found.members & {"maybe_trim_front", "start_position"}:
        chunk, name = declared.integer(("chunk_size",), least=1)
        if chunk is not None:
            return claims.with_(f"declares {name}={chunk}", visibility=Chunk(chunk))
    window, name = declared.integer(WINDOW_NAMES, least=1)
    if window is None:
        return claims
    sinks, sink_name = declared.integer(SINK_NAMES, least=1)
    if sinks is not None and sinks < window:
        source = f"declares {name}={window}, {sink_name}={sinks}"
        return claims.with_(source, visibility=Sinks(sinks, window))
    return claims.with_(f"declares {name}={window}", visibility=SlidingWindow(window))


def _infer_shapes(claims: Claims, declared: _Declared, found: Capabilities) -> Claims:
    padding = declared.integers("left_padding")
    if padding is not None and found.batched:
        claims = claims.with_(
            f"declares left_padding={list(padding)}",
            left_padding=padding,
            batch_sizes=(len(padding),),
        )
    heads, name = declared.integer(HEAD_NAMES, least=1)
    if heads is not None:
        claims = claims.with_(f"declares {name}={heads}", heads=heads)
    key_dim, name = declared.integer(KEY_DIM_NAMES, least=1)
    if key_dim is not None:
        value_dim, value_name = declared.integer(VALUE_DIM_NAMES, least=1)
        source = f"declares {name}={key_dim}"
        if value_dim is not None:
            source += f", {value_name}={value_dim}"
        claims = claims.with_(source, head_dims=((key_dim, value_dim or key_dim),))
    elif found.quantized:
        group, name = declared.integer(("group_size",), least=1)
        group = group or 64
        pairs = ((group, 2 * group), (group, group), (2 * group, group))
        claims = claims.with_(f"declares {name or 'bits'}={group}", head_dims=pairs)
    return claims


def _infer_pool(claims: Claims, declared: _Declared) -> Claims:
    claims = claims.with_("a pool holds rows of one token", batch_sizes=(1,))
    slots, name = declared.integer(SLOT_NAMES, least=1)
    if slots is not None:
        claims = claims.with_(f"declares {name}={slots}", slots=slots)
    layers, name = declared.integer(POOL_LAYER_NAMES, least=1)
    if layers is not None:
        claims = claims.with_(f"declares {name}={layers}", pool_layers=layers)
    dtype = declared.dtype("dtype")
    if dtype is not None:
        claims = claims.with_(f"declares dtype={dtype}", dtypes=(dtype,))
    return claims


class _Declared:
    """Constructor arguments and attributes of a fresh cache. Of properties only those that are
    named here are run: a read-only ``window`` declares as much as an attribute does."""

    def __init__(self, cache: Any, arguments: Mapping[str, Any]) -> None:
        self._cache = cache
        self._values: dict[str, Any] = {}
        for cls in reversed(type(cache).__mro__):
            self._values.update(vars(cls))
            slots = vars(cls).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                self._values[slot] = getattr(cache, slot, None)
        self._values.update(getattr(cache, "__dict__", {}))
        self._values.update(arguments)

    def integer(self, names: Iterable[str], *, least: int) -> tuple[int | None, str]:
        """The first of these names that is an int of at least ``least``, and the name."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, property):
                try:
                    value = getattr(self._cache, name)
                except Exception:
                    continue
            if isinstance(value, int) and not isinstance(value, bool) and value >= least:
                return value, name
        return None, ""

    def integers(self, name: str) -> tuple[int, ...] | None:
        value: Any = self._values.get(name)
        if isinstance(value, property):
            try:
                value = getattr(self._cache, name)
            except Exception:
                return None
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, int) for v in value):
            return tuple(value)
        return None

    def dtype(self, name: str) -> str | None:
        text = str(self._values.get(name))
        return text.removeprefix("mlx.core.") if text.startswith("mlx.core.") else None

    def all_integers(self) -> Iterable[int]:
        for name, value in self._values.items():
            plain = isinstance(value, int) and not isinstance(value, bool)
            if plain and not name.startswith("__") and 2 <= value <= _LARGEST_BOUNDARY:
                yield value
