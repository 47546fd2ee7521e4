"""Mutants of Python source: small changes, each of which some test should notice.

A mutant replaces one piece of the text, so that it reads as a diff. Left alone are what no test can
see (annotations, docstrings, the text of messages) and what only narrows types (``assert``).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
}
NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}
ORDERED_BY_TYPE = {"isinstance", "issubclass", "getattr", "hasattr", "cast", "setattr"}
"""Functions whose swapped arguments only ever raise."""
TIGHT = (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.IfExp, ast.Attribute, ast.Starred)
"""What an expression inside them must be put in parentheses for."""


@dataclass(frozen=True)
class Mutant:
    """One change of a source text."""

    function: str
    """Qualified name of the function or class that it is in; empty at the top."""
    line: int
    reach: tuple[int, int]
    """First and last line of the statement, of a compound one the header: it must be executed for
    the mutant to matter."""
    start: int
    end: int
    """The bytes of the text that are replaced."""
    text: str

    def of(self, source: str) -> str:
        """The mutated source."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def lines(self, source: str) -> tuple[str, str]:
        """The changed lines, as they were and as they become, on one line each."""
        data = source.encode()
        first = data.rfind(b"\n", 0, self.start) + 1
        last = data.find(b"\n", self.end)
        old = data[first:last].decode()
        new = (data[first : self.start] + self.text.encode() + data[self.end : last]).decode()
        return " ".join(old.split()), " ".join(new.split())


def mutants(source: str, function: str | None = None) -> list[Mutant]:
    """All mutants of a source text, or of one top-level function or class in it."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    found = finder.found
    if function is not None:
        found = [m for m in found if f"{m.function}.".startswith(f"{function}.")]
    by_text = {mutant.of(source): mutant for mutant in reversed(found)}
    return sorted(by_text.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._reach = (0, 0)
        self._parents: list[ast.AST] = []
        self._bound: set[str] = set()
        starts = [0]
        for line in source.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    # -- emitting -----------------------------------------------------------------------------

    def _replace(self, node: ast.expr | ast.stmt | ast.Slice, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        function = ".".join(self._names)
        self.found.append(Mutant(function, node.lineno, self._reach, start, end, text))

    def _become(self, node: ast.expr, new: ast.expr) -> None:
        """Replace an expression by another one."""
        text = _text(new)
        parent = self._parents[-1]
        if isinstance(parent, ast.BoolOp):
            tight = isinstance(new, (ast.BoolOp, ast.IfExp))
        else:
            of_parent = isinstance(parent, ast.Subscript) and parent.value is node
            tight = isinstance(new, TIGHT) and (isinstance(parent, TIGHT) or of_parent)
        if tight:
            text = f"({text})"
        self._replace(node, text)

    def _changed(self, node: ast.expr, **fields: object) -> None:
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        self._become(node, new)

    def _negate(self, test: ast.expr) -> None:
        # These get a mutant that says the same.
        same = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], same):
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        self._become(test, ast.UnaryOp(ast.Not(), copy.deepcopy(test)))

    # -- walking ------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if body:
                last = max(node.lineno, body[0].lineno - 1)
            reach, self._reach = self._reach, (node.lineno, last)
            super().visit(node)
            self._reach = reach
        else:
            super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        self._parents.append(node)
        super().generic_visit(node)
        self._parents.pop()

    def _within(self, node: ast.AST, *children: ast.AST | None) -> None:
        """Visit some children only."""
        self._parents.append(node)
        for child in children:
            if child is not None:
                self.visit(child)
        self._parents.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        bound, self._bound = (
            self._bound,
            {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)},
        )
        self._names.append(node.name)
        self._within(node, *node.args.defaults, *node.args.kw_defaults, *_code(node.body))
        self._names.pop()
        self._bound = bound

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        self._within(node, *_code(node.body))
        self._names.pop()

    def visit_Module(self, node: ast.Module) -> None:
        self._within(node, *_code(node.body))

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if "TypeAlias" not in ast.unparse(node.annotation):
            self._assigned(node, [node.target])
            self._within(node, node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if self._names or not any(name.startswith("__") for name in names):
            self._assigned(node, node.targets)
            self._within(node, node.value)

    def _assigned(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        """Drop an assignment, unless what reads the name would only find none."""
        names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        stored = {
            n.id
            for target in targets
            for n in ast.walk(target)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if self._names and stored <= self._bound and (names or not stored):
            self._replace(node, "pass")
        self._bound = self._bound | stored

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        other = ARITHMETIC.get(type(node.op))
        if other is not None:
            new = copy.deepcopy(node)
            new.op = other
            self._replace(node, _text(new))
        self._within(node, node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node, "return None")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._parents.append(node)
        self._negate(node.test)
        self._parents.pop()
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._become(node, node.body)
        self._become(node, node.orelse)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._parents.append(node)
        for test in node.ifs:
            self._negate(test)
        self._parents.pop()
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, op in enumerate(node.ops):
            ops = list(node.ops)
            ops[index] = COMPARISONS[type(op)]
            self._changed(node, ops=ops)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            self._become(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = ARITHMETIC.get(type(node.op))
        if other is not None:
            self._changed(node, op=other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub)):
            self._become(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))
            if not isinstance(self._parents[-1], ast.UnaryOp):
                self._replace(node, str(node.value - 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name in NAMES:
            self._replace(node.func, NAMES[name])
        swappable = [arg for arg in node.args[:2] if not isinstance(arg, ast.Starred)]
        if len(swappable) == 2 and name not in {*ORDERED_BY_TYPE, *NAMES}:
            self._changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                rest = node.keywords[:index] + node.keywords[index + 1 :]
                self._changed(node, keywords=rest)
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for field in ("lower", "upper"):
            if getattr(node, field) is not None:
                new = copy.deepcopy(node)
                setattr(new, field, None)
                self._replace(node, _text(new))
        self.generic_visit(node)


def _text(node: ast.AST) -> str:
    """A node as it would stand in the source, with the quotes that this project uses."""
    text = ast.unparse(ast.fix_missing_locations(node))
    return text if '"' in text else text.replace("'", '"')


def _code(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements without docstrings and lone constants."""
    for statement in body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield statement
