"""Counterexamples as Python programs that need only the subject's package and mlx.

A run records each call as a line of Python while it makes it; a violation adds the assertion
that fails. The helpers that its lines use are printed into the program, without their types.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Sequence

from conformance import helpers
from conformance.tags import Dims

HELPERS: tuple[Callable[..., object], ...] = (
    helpers.dequantized,
    helpers.opened,
    helpers.arrays,
    helpers.numbers,
    helpers.seen,
    helpers.ragged_step,
)


def listed(ids: Sequence[int]) -> str:
    """A list of token numbers as short Python: ``[3]`` or ``range(0, 256)``."""
    if len(ids) > 3 and list(ids) == list(range(ids[0], ids[0] + len(ids))):
        return f"range({ids[0]}, {ids[0] + len(ids)})"
    return repr(list(ids))


def ranges(ids: Iterable[int]) -> str:
    """Token numbers for a reader: ``0, 1, 6-9``; rows that are no token are ``?``."""
    groups: list[list[int]] = []
    for number in ids:
        last = groups[-1][-1] if groups else None
        if last is not None and (number == last + 1 if last >= 0 else number < 0):
            groups[-1].append(number)
        else:
            groups.append([number])
    parts = []
    for group in groups:
        if group[0] < 0:
            parts.append("?" if len(group) == 1 else f"? x {len(group)}")
        elif len(group) > 2:
            parts.append(f"{group[0]}-{group[-1]}")
        else:
            parts += [str(number) for number in group]
    return ", ".join(parts) if parts else "none"


def _source(function: Callable[..., object], defaults: Sequence[str] = (), name: str = "") -> str:
    """A helper's code without annotations, under another name and with defaults if given."""
    tree = ast.parse(inspect.getsource(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    outer = tree.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.name = name or outer.name
    if defaults:
        outer.args.defaults = [ast.parse(text, mode="eval").body for text in defaults]
    return ast.unparse(tree)


def render(
    *,
    title: Sequence[str],
    imports: Sequence[str],
    call: str | None,
    dims: Dims,
    body: Sequence[str],
    name: str = "cache",
) -> str:
    """The whole program as text."""
    lines = [f"# {line}".rstrip() for line in title]
    lines += ["", "import mlx.core as mx", *imports]
    body = folded(body)
    text = "\n".join(body)
    if re.search(r"\b(tokens|numbers|seen)\(", text):
        sizes = (dims.batch, dims.heads, dims.key_dim, dims.value_dim, f"mx.{dims.dtype}")
        lines += ["", _source(helpers.make_tokens, [str(size) for size in sizes], "tokens")]
    used = set(re.findall(r"\b(\w+)\(", text))
    used |= {"numbers"} if "seen" in used else set()
    for helper in HELPERS:
        if helper.__name__ in used:
            lines += ["", _source(helper)]
    lines += ["", f"{name} = {call or f'...  # construct the {name} here'}", *body]
    return "\n".join(lines) + "\n"


_ONE_TOKEN = re.compile(r"tokens\(\[(\d+)\]\)")


def folded(body: Sequence[str]) -> list[str]:
    """The same lines with runs of equal one-token steps written as a loop."""
    out: list[str] = []
    index = 0
    while index < len(body):
        for size in (1, 2):
            repeats, first = _repeats(body, index, size)
            if repeats >= 3:
                block = body[index : index + size]
                out.append(f"for t in range({first}, {first + repeats}):")
                out += [f"    {_ONE_TOKEN.sub('tokens([t])', line)}" for line in block]
                index += repeats * size
                break
        else:
            out.append(body[index])
            index += 1
    return out


def _repeats(body: Sequence[str], start: int, size: int) -> tuple[int, int]:
    """How often the block of ``size`` lines at ``start`` repeats with token numbers counting up,
    and the first number."""

    def shape(index: int) -> tuple[list[str], list[int]]:
        block = body[index : index + size]
        found = [int(number) for line in block for number in _ONE_TOKEN.findall(line)]
        return [_ONE_TOKEN.sub("", line) for line in block], found

    form, found = shape(start)
    if len(found) != 1 or any(line.startswith((" ", "try", "except")) for line in form):
        return 0, 0
    count = 1
    while start + (count + 1) * size <= len(body):
        later, number = shape(start + count * size)
        if later != form or number != [found[0] + count]:
            break
        count += 1
    return count, found[0]
