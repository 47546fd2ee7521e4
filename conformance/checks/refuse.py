"""Checks of the refusal contract: operations that a cache does not support."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.engine import Context, check
from conformance.trace import Ask, Run

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


def _offered(ctx: Context) -> list[str]:
    return [name for name in OPERATIONS if name in ctx.profile.capabilities.members]


def _refused(ctx: Context) -> list[tuple[str, Exception]]:
    """The offered operations that say NotImplementedError, with the exception."""
    found: list[tuple[str, Exception]] = []
    for name in _offered(ctx):
        ctx.tried += 1
        try:
            OPERATIONS[name][1](_filled(ctx).cache)
        except NotImplementedError as error:
            found.append((name, error))
        except Exception:
            continue  # an operation that fails is the business of its own contract
    return found


@check("REF-1")
def unsupported_is_visible(ctx: Context) -> None:
    for name, error in _refused(ctx):
        run = _filled(ctx)
        run.lines.append(OPERATIONS[name][0])
        run.fail(
            f"{name} is offered, and raises NotImplementedError when it is called",
            expected=f"hasattr(cache, {name!r}) is False",
            observed=f"NotImplementedError: {error}"[:100],
        )
    if "is_trimmable" in ctx.profile.capabilities.members:
        run = _filled(ctx)
        trimmable = run.read("cache.is_trimmable()", run.cache.is_trimmable)
        if trimmable and "trim" not in ctx.profile.capabilities.members:
            run.fail(
                "is_trimmable() is True, and there is no trim",
                expected="is_trimmable() False, or trim",
                observed="True",
                code=["assert hasattr(cache, 'trim')"],
            )


@check("REF-2")
def refusal_is_harmless(ctx: Context) -> None:
    for name, _ in _refused(ctx):
        run = _filled(ctx)
        before = run.observe()
        line, call = OPERATIONS[name]
        run.attempt(line, partial(call, run.cache))
        after = run.observe()
        for what, value in before.items():
            if after[what] != value:
                run.fail(
                    f"{name} is refused, and {what} has changed",
                    expected=str(value)[:80],
                    observed=str(after[what])[:80],
                    code=["raise AssertionError('it has changed')"],
                )


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
