"""Refuse an import of a name that its module of this repository does not have, or of no module of it.

pytest collects nothing of a folder of which one file cannot be imported, and says so after all
other tests have run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pyft", "pyft_lab")


def _targets(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement gives to a module, those of its branches included."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _targets(child)


def names(tree: ast.Module) -> set[str]:
    """Return what can be imported from a module; with "*" or "__getattr__" it is anything."""
    return {name for node in tree.body for name in _targets(node)}


def _module(path: Path) -> str:
    """Return the name by which others import a file: packages in full, tests by the file's name."""
    parts = path.with_suffix("").parts
    if parts[0] not in PACKAGES:
        return parts[-1]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _missing(path: Path, node: ast.AST, files: Mapping[str, list[Path]]) -> Iterator[str]:
    """Yield a sentence for a module of our packages that is not there."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        modules = [node.module]
    else:
        return
    for module in modules:
        package = module.partition(".")[0]
        if package in PACKAGES and package in files and module not in files:
            yield f"{path}:{node.lineno}: there is no module {module}"


def problems(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Yield one sentence per import of what is not there. Paths are relative to the root."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in trees:
        files[_module(path)].append(path)
    offered = {name: names(trees[paths[0]]) for name, paths in files.items() if len(paths) == 1}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            yield from _missing(path, node, files)
            if not isinstance(node, ast.ImportFrom) or node.level or node.module not in offered:
                continue
            has = offered[node.module]
            for alias in node.names:
                known = (
                    has & {alias.name, "*", "__getattr__"} or f"{node.module}.{alias.name}" in files
                )
                if not known and alias.name != "*":
                    yield f"{path}:{node.lineno}: {node.module} has no {alias.name}"


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    found = list(problems({path: ast.parse((ROOT / path).read_bytes()) for path in paths}))
    print("\n".join(found) or "imports: 0 problems")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
