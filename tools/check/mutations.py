"""Small changes of a module's source, one at a time, for mutants.py."""

from __future__ import annotations

import ast
import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LONGEST = 100  # characters of a mutant's text


@dataclass(frozen=True)
class Mutant:
    """One changed module."""

    line: int
    text: str  # where and what, without the line: it stays the same while others are changed
    build: Callable[[], CodeType] = field(repr=False, compare=False)

    @property
    def code(self) -> CodeType:
        """The module, compiled now: most of a file's mutants are only named."""
        return self.build()


def mutants(path: Path) -> list[Mutant]:
    """Return all of a file."""
    tree = ast.parse(path.read_text())
    places = _places(tree)
    members = _members(tree)
    found: list[Mutant] = []
    seen: dict[str, int] = defaultdict(int)
    for number, node in enumerate(ast.walk(tree)):
        if number not in places:
            continue
        for changed in _changes(node, members):
            text = f"{places[number]}: {_text(node)} -> {_text(changed)}"
            seen[text] += 1
            if seen[text] > 1:
                text += f" ({seen[text]})"
            build = functools.partial(_built, tree, number, changed, str(path))
            found.append(Mutant(node.lineno, text, build))  # type: ignore[attr-defined]
    return sorted(found, key=lambda mutant: mutant.line)


def _places(tree: ast.Module) -> dict[int, str]:
    """Return the number of each node that may be changed, in walking order, and where it stands."""
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found: dict[int, str] = {}

    def visit(node: ast.AST, where: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}" if where else node.name
        if hasattr(node, "lineno"):
            found[numbers[id(node)]] = where or "module"
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_outside(child):
                    visit(child, where)

    visit(tree, "")
    return found


def _is_outside(node: ast.AST) -> bool:
    """Say whether it is what no test is for: imports, texts, what runs as a program."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
        return True
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _members(tree: ast.Module) -> dict[str, list[str]]:
    """Return which members of each enum the module names: Do.SAME may become Do.OTHER."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.attr.isupper() and node.value.id[:1].isupper():
            found[node.value.id].add(node.attr)
    return {name: sorted(values) for name, values in found.items() if len(values) > 1}


def _changes(node: ast.AST, members: dict[str, list[str]]) -> Iterator[ast.AST]:
    """Yield what may stand instead of a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield _with(node, ops=[COMPARISONS[type(node.ops[0])]()])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _with(node, value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield _with(node, value=node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield _with(node, func=ast.Name(CALLS[node.func.id], ast.Load()))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        known = members.get(node.value.id, [])
        if node.attr in known:
            yield _with(node, attr=known[(known.index(node.attr) + 1) % len(known)])
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _flips(node.test):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value and _value(node.value) is not None:
        yield _with(node, value=ast.Constant(None))
    elif isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)) or _acts(node):
        yield ast.Pass()


def _flips(test: ast.expr) -> bool:
    """Say whether another change of this condition is its negation already."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], NEGATED)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _value(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else node


def _acts(node: ast.AST) -> bool:
    """Say whether a statement changes something outside of its function."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(to, (ast.Attribute, ast.Subscript)) for to in node.targets)
    return False


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _built(tree: ast.Module, number: int, changed: ast.AST, path: str) -> CodeType:
    return compile(_replaced(tree, number, changed), path, "exec")


def _replaced(tree: ast.Module, number: int, changed: ast.AST) -> ast.Module:
    """Return a copy of the tree in which the node of this number is another one."""
    new = copy.deepcopy(tree)
    old = next(node for at, node in enumerate(ast.walk(new)) if at == number)
    changed = copy.deepcopy(changed)
    for parent in ast.walk(new):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, changed)
            elif isinstance(value, list) and any(child is old for child in value):
                setattr(parent, name, [changed if child is old else child for child in value])
    ast.copy_location(changed, old)
    return ast.fix_missing_locations(new)


def _text(node: ast.AST) -> str:
    """Return a statement's first line, or an expression, in few characters."""
    line = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).partition("\n")[0]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
