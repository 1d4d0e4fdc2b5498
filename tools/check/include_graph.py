"""Which folder includes which: the graph that `layering.py` judges and `house.py` measures.

A node is a folder below softgpu/, flexccl/, profiling/, proxy/, shim/, pyft/ or pyft_lab/. An include is resolved as the
compiler does it: beside the file, then in the include roots of its part. Generated and system headers
have no file in the tree and so no edge. A Python import counts as an include, also one for types only.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FACE = "pyft/__init__.py"
PARTS = ("softgpu", "flexccl", "profiling", "proxy", "shim")
PYTHON_PARTS = ("pyft", "pyft_lab")
ROOTS: Mapping[str, tuple[str, ...]] = {
    "softgpu": ("softgpu", "softgpu/include", "profiling/include"),
    "flexccl": ("flexccl", "flexccl/include"),
    "profiling": ("profiling/include",),
    "proxy": (
        *("proxy", "proxy/include", "flexccl/include", "softgpu/include"),
        "profiling/include",
    ),
    "shim": ("proxy", "proxy/include", "shim"),
}
INCLUDE = re.compile(r"""^\s*#\s*include\s*(["<])([^">]+)[">](.*)""")


@dataclass(frozen=True)
class Include:
    """One #include of a file of ours, all paths relative to the root of the tree."""

    file: str
    line: int
    text: str
    target: str  # the file it names
    comment: str = ""  # behind it

    @property
    def edge(self) -> tuple[str, str]:
        # A `__main__` is run and not imported, so it is no part of its folder. Neither is what
        # `import pyft` hands out to programs: it loads that at the first use.
        apart = self.file.endswith("/__main__.py") or self.file == FACE
        return self.file if apart else folder_of(self.file), folder_of(self.target)


def folder_of(file: str) -> str:
    return file.rpartition("/")[0]


def sources(root: Path) -> Iterator[Path]:
    """Yield the C and C++ files of the product."""
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix in {".cc", ".c", ".h"}:
                yield path


def resolve(root: Path, path: Path, include: str, beside: bool = True) -> str | None:
    """Return the file of ours that an include names, None for generated and system headers.

    `beside`: it may lie beside the file, as one in quotes.
    """
    part = path.relative_to(root).parts[0]
    for folder in (*([path.parent] if beside else []), *(root / name for name in ROOTS[part])):
        if (folder / include).is_file():
            return (folder / include).resolve().relative_to(root).as_posix()
    return None


def includes(root: Path) -> Iterator[Include]:
    """Yield every include of a file of ours by a file of the product."""
    for path in sources(root):
        file = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not (match := INCLUDE.match(line)):
                continue
            opening, name, behind = match.groups()
            if target := resolve(root, path, name, opening == '"'):
                yield Include(file, number, name, target, behind.strip())


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield line, module, and the names taken out of it, of every import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module, tuple(alias.name for alias in node.names)


def module_file(root: Path, module: str) -> str | None:
    """Return the file of a module of ours, for a package that of its `__init__`."""
    path = module.replace(".", "/")
    files = (f"{path}.py", f"{path}/__init__.py")
    return next((file for file in files if (root / file).is_file()), None)


def python_imports(root: Path, part: str) -> Iterator[Include]:
    """Yield every import of a module of a part of the tree by another one."""
    for path in sorted((root / part).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        for line, module, names in imported_names(ast.parse(path.read_text(), filename=file)):
            if module.split(".")[0] != part:
                continue
            within = [module_file(root, f"{module}.{name}") for name in names]
            targets = [one or module_file(root, module) for one in within or [None]]
            for target in dict.fromkeys(targets):
                if target:
                    yield Include(file, line, module, target)


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the strongly connected sets of more than one node, each sorted (Tarjan 1972)."""
    after: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        after[source].add(target)
    found: list[list[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(after.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(after):
        if node not in index:
            visit(node)
    return sorted(found)
