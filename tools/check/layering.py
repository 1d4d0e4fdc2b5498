"""Refuse includes and imports that go against the layering (`layering.py [root]`).

shim -> client -> ring <- checkpoint <- server -> backend; softgpu and flexccl include nothing of
ours but themselves, softgpu profiling too; client and server never include each other; only pyft/torch_support imports torch;
Python reaches native code only through pyft._native, and imports name their module in full. Folders include each other without cycles, and
so do those of Python, where an import for types counts.
pyft and pyft_lab import nothing of each other; of pyft_lab, only what runs in the ranks imports torch:
workloads, and functions of mechanisms and of the class that all of these derive from.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from include_graph import (
    PYTHON_PARTS,
    Include,
    cycles,
    folder_of,
    imported_names,
    includes,
    python_imports,
)

# part -> folders whose headers it may include, besides its own and generated ones
MAY_INCLUDE: dict[str, set[str]] = {
    "softgpu": {"profiling/include"},
    "profiling": set(),
    "flexccl": set(),
    "proxy/ring": {"proxy/include"},
    "proxy/api": {"proxy/include", "proxy/ring"},
    "proxy/include": set(),
    "proxy/native": {"proxy/include", "proxy/ring", "proxy/api", "proxy/checkpoint"},
    "proxy/backend": {"proxy/include", "flexccl/include", "softgpu/include"},
    "proxy/client": {"proxy/ring", "proxy/api", "proxy/include", "profiling/include"},
    "proxy/checkpoint": {"proxy/ring", "proxy/include"},
    "proxy/server": {
        "proxy/ring",
        "proxy/api",
        "proxy/include",
        "proxy/backend",
        "proxy/checkpoint",
    },
    "proxy/collectives": {"proxy/api", "proxy/include", "flexccl/include", "softgpu/include"},
    "shim": {"proxy/client", "proxy/ring", "proxy/include"},
}
# The header that has NCCL's types: who needs no more of it says so.
NCCL, OF_NCCL = "flexccl/include/flexccl.h", "// NCCL's types"
IN_RANKS = ("pyft_lab/mechanisms/", "pyft_lab/api.py")  # what functions import runs there


def part_of(folder: str, parts: Iterable[str]) -> str | None:
    """Return the longest of `parts` that a folder lies in."""
    found = [part for part in parts if f"{folder}/".startswith(part + "/")]
    return max(found, key=len, default=None)


def check_parts(found: Iterable[Include]) -> Iterator[str]:
    """Yield one sentence per #include of a part that the including part may not know."""
    for include in found:
        part = part_of(folder_of(include.file), MAY_INCLUDE)
        if part is None:
            yield f"{include.file}:{include.line}: lies in no part that the layering knows"
            continue
        if include.target == NCCL and include.comment.startswith(OF_NCCL):
            continue
        target = folder_of(include.target)
        if part_of(target, {part, *MAY_INCLUDE[part]}) is None:
            yield (
                f"{include.file}:{include.line}: [{part}] may not include [{include.text}] "
                f"of [{target}]"
            )


def check_cycles(found: Iterable[Include]) -> Iterator[str]:
    """Yield one sentence per #include that closes a cycle of folders."""
    by_edge: dict[tuple[str, str], Include] = {}
    for include in found:
        source, target = include.edge
        if source != target:
            by_edge.setdefault((source, target), include)
    rings = [set(members) for members in cycles(by_edge)]
    cyclic = {edge for edge in by_edge if any(set(edge) <= ring for ring in rings)}
    for edge in sorted(cyclic):
        include = by_edge[edge]
        yield (
            f"{include.file}:{include.line}: [{edge[0]}] includes [{include.text}] of [{edge[1]}], "
            f"which closes a cycle of folders"
        )


def check_relative(root: Path) -> Iterator[str]:
    """Yield one sentence per import that does not name its module in full: no rule would see it."""
    for part in PYTHON_PARTS:
        for path in sorted((root / part).rglob("*.py")):
            relative = path.relative_to(root).as_posix()
            for node in ast.walk(ast.parse(path.read_text(), filename=relative)):
                if isinstance(node, ast.ImportFrom) and node.level:
                    yield f"{relative}:{node.lineno}: a relative import: name the module in full"


def check_imports(root: Path) -> Iterator[str]:
    """Yield one sentence per forbidden Python import."""
    for path in sorted((root / "pyft").rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        for line, name, _ in imported_names(ast.parse(path.read_text(), filename=relative)):
            top = name.split(".")[0]
            if top == "torch" and not relative.startswith("pyft/torch_support/"):
                yield f"{relative}:{line}: only pyft/torch_support imports torch"
            native = ("pyft/_native/", "pyft/torch_support/")
            if top == "ctypes" and not relative.startswith(native):
                yield f"{relative}:{line}: only pyft/_native uses ctypes"
            if top == "pyft_lab":
                yield f"{relative}:{line}: pyft imports nothing of pyft_lab"
    for path in sorted((root / "pyft_lab").rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(), filename=relative)
        outside = {node.lineno for node in tree.body}  # of all functions
        for line, name, _ in imported_names(tree):
            top = name.split(".")[0]
            if top == "pyft":
                yield f"{relative}:{line}: pyft_lab knows pyft by its command line only"
            inside = relative.startswith(IN_RANKS) and line not in outside
            if top == "torch" and not (inside or relative.startswith("pyft_lab/workloads/")):
                yield f"{relative}:{line}: only pyft_lab/workloads imports torch"


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(includes(root))
    problems = [*check_parts(found), *check_cycles(found)]
    problems += [*check_relative(root), *check_imports(root)]
    for part in PYTHON_PARTS:
        problems += check_cycles(python_imports(root, part))
    for problem in problems:
        print(problem)
    print(f"layering: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
