"""Targets: the text by which a user names a cache, turned into a factory.

``package.module:Name``, ``package.module:Name(8, keep=2)`` or ``path/to/file.py:Name(...)``.
Arguments are literals and are never evaluated as code.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.limits import Interrupted, is_ours, limited


class TargetError(Exception):
    """A target that cannot be used; the message says what to write instead."""


class CannotBeTested(TargetError):
    """A cache that cannot be imported, made or read. It ends no run but its own."""


@dataclass(frozen=True)
class Target:
    """A parsed target."""

    text: str
    module: str
    """Dotted module, or a path that ends in ``.py``."""
    name: str
    """Qualified name inside the module."""
    arguments: tuple[Any, ...] | None
    """Positional arguments; None where the target has no call at all."""
    keywords: Mapping[str, Any]

    @property
    def is_path(self) -> bool:
        return self.module.endswith(".py")

    @property
    def call(self) -> str:
        """``Name(8, keep=2)``."""
        parts = [repr(value) for value in self.arguments or ()]
        parts += [f"{key}={value!r}" for key, value in self.keywords.items()]
        return f"{self.name}({', '.join(parts)})"

    @property
    def imports(self) -> list[str]:
        """Lines of Python that make :attr:`call` work."""
        top = self.name.partition(".")[0]
        if self.is_path:
            path = Path(self.module)
            if not path.stem.isidentifier():
                return ["import runpy", f"{top} = runpy.run_path({self.module!r})[{top!r}]"]
            return [
                "import sys",
                f"sys.path.insert(0, {path.parent.as_posix()!r})",
                f"from {path.stem} import {top}",
            ]
        return [f"from {self.module} import {top}"]


EXAMPLE = "'package.module:Name', 'package.module:Name(8, keep=2)' or 'path/to/file.py:Name'"


def parse(text: str) -> Target:
    """Parse a target without importing anything.

    Raises:
        TargetError: the text is not of the form, or an argument is not a literal.
    """
    module, colon, expression = text.strip().partition(":")
    if not colon:
        last = module.rpartition(".")
        hint = f" Did you mean '{last[0]}:{last[2]}'?" if last[1] and last[2] != "py" else ""
        raise TargetError(f"{text!r} has no colon; write {EXAMPLE}.{hint}")
    module, expression = module.strip(), expression.strip()
    if not module or not expression:
        raise TargetError(f"{text!r} names no {'class' if module else 'module'}; write {EXAMPLE}.")
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise TargetError(f"{text!r}: {expression!r} is not Python ({error.msg}).") from None
    call = node if isinstance(node, ast.Call) else None
    function = call.func if call is not None else node
    name = _dotted(function)
    if name is None:
        raise TargetError(
            f"{text!r}: {ast.unparse(function)!r} is not a name; write {EXAMPLE}. For anything "
            "else, build a conformance.Subject in Python and name that."
        )
    if call is None:
        return Target(text, module, name, None, {})
    arguments = tuple(_literal(text, argument) for argument in call.args)
    keywords = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise TargetError(f"{text!r}: ** is not supported; write the arguments out.")
        keywords[keyword.arg] = _literal(text, keyword.value)
    return Target(text, module, name, arguments, keywords)


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else None
    return None


def _literal(text: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise TargetError(
            f"{text!r}: the argument {ast.unparse(node)!r} is not a literal. Arguments are never "
            "evaluated; write a function without arguments that returns the cache, for example\n"
            f"    def make_cache():\n        return ...({ast.unparse(node)})\n"
            "and name it, as in 'path/to/file.py:make_cache'."
        ) from None


def load_module(target: Target, directory: Path) -> ModuleType:
    """Import the module of a target, looking in ``directory`` too.

    Raises:
        TargetError: there is no such module or file.
        CannotBeTested: importing it raises, or takes too long.
    """
    try:
        with limited():
            if target.is_path:
                return _load_path(target, directory)
            return _load_dotted(target, directory)
    except (TargetError, Interrupted):
        raise
    except BaseException as error:
        raise CannotBeTested(
            f"{target.text!r}: importing {target.module!r} {told(error)}\n{_last_frame(error)}"
        ) from error


def _load_dotted(target: Target, directory: Path) -> ModuleType:
    # The console script `pytest` does not put the current directory on the path; users expect it.
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if target.module != missing and not target.module.startswith(f"{missing}."):
            raise  # the module exists, and something that it imports does not
        if target.module == missing and "." in target.module:
            advice = f"the package {target.module.rpartition('.')[0]!r} has no such module."
        else:
            advice = f"is {missing!r} installed in this environment ({sys.prefix})?"
        raise TargetError(
            f"{target.text!r}: no module {missing!r}; {advice} "
            "A file is named by its path, as in 'path/to/file.py:Name'."
        ) from None


def _load_path(target: Target, directory: Path) -> ModuleType:
    path = (directory / target.module).resolve()
    if not path.is_file():
        raise TargetError(f"{target.text!r}: no file {target.module!r} below {os.curdir!r}.")
    # Under its own name, so that pickling finds its classes; not over another module of that name.
    name = path.stem
    while (known := sys.modules.get(name)) is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _last_frame(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"  at {last.filename}:{last.lineno}: {last.line}"


def load_object(target: Target, directory: Path) -> Any:
    """The object that a target names.

    Raises:
        TargetError: the module has no such attribute; the message lists what it has.
    """
    found: Any = load_module(target, directory)
    for part in target.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            classes = [
                name
                for name, value in vars(found).items()
                if isinstance(value, type) and not name.startswith("_")
            ]
            classes.sort(key=lambda name: ("cache" not in name.lower(), name))
            offered = f" It has {', '.join(classes[:8])}." if classes else ""
            raise TargetError(
                f"{target.text!r}: {target.module!r} has no {part!r}.{offered}"
            ) from None
    return found


def make_factory(target: Target, found: Any) -> Callable[[], Any]:
    """A function that constructs a fresh cache.

    Raises:
        TargetError: the object cannot be called.
        CannotBeTested: calling it raises; the message gives the signature and an example.
    """
    is_cache = not isinstance(found, type) and hasattr(found, "update_and_fetch")
    if not callable(found) or is_cache:
        raise TargetError(
            f"{target.text!r} is an object of class {type(found).__name__}, not a class or a "
            "function. Every test needs a fresh cache: name the class, or a function that "
            "returns a new cache."
        )

    def factory() -> Any:
        return found(*(target.arguments or ()), **target.keywords)

    try:
        with limited():
            factory()
    except Interrupted:
        raise
    except BaseException as error:
        raise CannotBeTested(
            f"{target.text!r}: {target.call} {told(error)}\n{_signature_advice(target, found)}"
        ) from error
    return factory


def told(error: BaseException) -> str:
    """What the code of a cache did, as the end of a sentence."""
    return str(error) if is_ours(error) else f"raises {type(error).__name__}: {error}"


def _signature_advice(target: Target, found: Any) -> str:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return "Give literal arguments in parentheses after the name."
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    filled = ", ".join(f"{parameter.name}=..." for parameter in required)
    example = f"--cache '{target.module}:{target.name}({filled or '...'})'"
    return f"Its signature is {target.name}{signature}; write for example {example}."
