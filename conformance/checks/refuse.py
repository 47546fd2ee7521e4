"""Checks of the refusal contract: operations that a cache does not support."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.engine import Context, check
from conformance.trace import Ask, Run
from kvproto import is_typed_never

OPERATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "to_quantized": (
        "cache.to_quantized(group_size=32, bits=8)",
        lambda cache: cache.to_quantized(group_size=32, bits=8),
    ),
    "merge": ("type(cache).merge([cache])", lambda cache: type(cache).merge([cache])),
    "extract": ("cache.extract(0)", lambda cache: cache.extract(0)),
    "filter": ("cache.filter([0])", lambda cache: cache.filter([0])),
    "size": ("cache.size()", lambda cache: cache.size()),
    "empty": ("cache.empty()", lambda cache: cache.empty()),
    "nbytes": ("cache.nbytes", lambda cache: cache.nbytes),
    "is_trimmable": ("cache.is_trimmable()", lambda cache: cache.is_trimmable()),
    "finalize": ("cache.finalize()", lambda cache: cache.finalize()),
}
"""Members that consumers probe with hasattr, and how they call them."""


def _filled(ctx: Context) -> Run:
    run = ctx.run(masks=False)
    if ctx.profile.capabilities.storage_backed:
        run.step(Ask(3))
    return run


MAY_RAISE = frozenset({"extract", "filter", "finalize"})
"""Operations that may raise RuntimeError for the state they are called in; that is no refusal."""


def _offered(ctx: Context) -> list[str]:
    """The operations that a consumer takes for supported: there, and not typed ``-> Never``."""
    cache = ctx.profile.subject.factory()
    members = ctx.profile.capabilities.members
    return [name for name in OPERATIONS if name in members and not is_typed_never(cache, name)]


def _refused(ctx: Context) -> list[tuple[str, Exception]]:
    """The offered operations that are refused when they are called, with the exception."""
    found: list[tuple[str, Exception]] = []
    for name in _offered(ctx):
        ctx.tried += 1
        try:
            OPERATIONS[name][1](_filled(ctx).cache)
        except NotImplementedError as error:
            found.append((name, error))
        except RuntimeError as error:
            if name not in MAY_RAISE:
                found.append((name, error))
        except Exception:
            continue  # an operation that fails is the business of its own contract
    return found


@check("REF-1", needs=("UPD-1",))
def unsupported_is_visible(ctx: Context) -> None:
    for name, error in _refused(ctx):
        run = _filled(ctx)
        run.lines.append(OPERATIONS[name][0])
        run.fail(
            f"{name} is offered, and raises {type(error).__name__} when it is called",
            expected=f"hasattr(cache, {name!r}) is False",
            observed=f"{type(error).__name__}: {error}"[:100],
        )


@check("REF-2")
def refusal_is_harmless(ctx: Context) -> None:
    for name, _ in _refused(ctx):
        run = _filled(ctx)
        before, at = run.observe(), len(run.lines)
        line, call = OPERATIONS[name]
        run.attempt(line, partial(call, run.cache))
        run.unchanged(f"{name}, although it is refused,", before, at)


@check("REF-3")
def refusal_names_the_class(ctx: Context) -> None:
    for name, error in _refused(ctx):
        run = _filled(ctx)
        cls = type(run.cache).__name__
        if cls not in str(error):
            run.lines.append(OPERATIONS[name][0])
            run.fail(
                f"the message of {name} does not name the class",
                expected=f"a message with {cls}",
                observed=f"{type(error).__name__}: {error}"[:100],
            )
