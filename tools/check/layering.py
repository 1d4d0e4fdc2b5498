"""Refuse includes and imports that go against the layering (`layering.py [root]`).

shim -> client -> ring <- server -> backend; softgpu and flexccl include nothing of ours but
themselves; client and server never include each other; only pyft/torch_support imports torch;
Python reaches native code only through pyft._native. Folders include each other without cycles.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from include_graph import Include, cycles, folder_of, includes

# part -> folders whose headers it may include, besides its own and generated ones
MAY_INCLUDE: dict[str, set[str]] = {
    "softgpu": set(),
    "flexccl": set(),
    "proxy/ring": {"proxy/include"},
    "proxy/api": {"proxy/include", "proxy/ring"},
    "proxy/include": set(),
    "proxy/native": {"proxy/include", "proxy/ring", "proxy/api"},
    "proxy/backend": {"proxy/include", "flexccl/include", "softgpu/include"},
    "proxy/client": {"proxy/ring", "proxy/api", "proxy/include"},
    "proxy/server": {"proxy/ring", "proxy/api", "proxy/include", "proxy/backend"},
    "proxy/collectives": {"proxy/api", "proxy/include", "flexccl/include", "softgpu/include"},
    "shim": {"proxy/client", "proxy/ring", "proxy/include"},
}

# Pairs of folders that still include each other in a cycle. This list may only shrink: an entry
# whose cycle is gone is refused as well.
KNOWN_CYCLES: set[tuple[str, str]] = {
    ("flexccl/algo", "flexccl/core"),
    ("flexccl/algo", "flexccl/reduce"),
    ("flexccl/algo", "flexccl/transport"),
    ("flexccl/core", "flexccl/algo"),
    ("flexccl/core", "flexccl/transport"),
    ("flexccl/reduce", "flexccl/core"),
    ("flexccl/transport", "flexccl/algo"),
    ("flexccl/transport", "flexccl/core"),
    ("proxy/server", "proxy/server/digest"),
    ("proxy/server", "proxy/server/handlers"),
    ("proxy/server", "proxy/server/recovery"),
    ("proxy/server/digest", "proxy/server/recovery"),
    ("proxy/server/handlers", "proxy/server"),
    ("proxy/server/handlers", "proxy/server/recovery"),
    ("proxy/server/recovery", "proxy/server"),
    ("proxy/server/recovery", "proxy/server/digest"),
    ("proxy/server/recovery", "proxy/server/handlers"),
    ("softgpu/core", "softgpu/loader"),
    ("softgpu/loader", "softgpu/core"),
}


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
        target = folder_of(include.target)
        if part_of(target, {part, *MAY_INCLUDE[part]}) is None:
            yield (
                f"{include.file}:{include.line}: [{part}] may not include [{include.text}] "
                f"of [{target}]"
            )


def check_cycles(found: Iterable[Include], known: set[tuple[str, str]]) -> Iterator[str]:
    """Yield one sentence per #include that closes a cycle of folders, and per stale exception."""
    by_edge: dict[tuple[str, str], Include] = {}
    for include in found:
        source, target = include.edge
        if source != target:
            by_edge.setdefault((source, target), include)
    rings = [set(members) for members in cycles(by_edge)]
    cyclic = {edge for edge in by_edge if any(set(edge) <= ring for ring in rings)}
    for edge in sorted(cyclic - known):
        include = by_edge[edge]
        yield (
            f"{include.file}:{include.line}: [{edge[0]}] includes [{include.text}] of [{edge[1]}], "
            f"which closes a cycle of folders"
        )
    for source, target in sorted(known - cyclic):
        yield f"tools/check/layering.py: [{source}] -> [{target}] is in no cycle: take it out"


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module


def check_imports(root: Path) -> Iterator[str]:
    """Yield one sentence per forbidden Python import."""
    for path in sorted((root / "pyft").rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        for line, name in imported_names(ast.parse(path.read_text(), filename=relative)):
            top = name.split(".")[0]
            if top == "torch" and not relative.startswith("pyft/torch_support/"):
                yield f"{relative}:{line}: only pyft/torch_support imports torch"
            native = ("pyft/_native/", "pyft/torch_support/")
            if top == "ctypes" and not relative.startswith(native):
                yield f"{relative}:{line}: only pyft/_native uses ctypes"


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(includes(root))
    # Another tree than this one (a test's) has none of this tree's exceptions.
    known = KNOWN_CYCLES if root == Path(__file__).resolve().parents[2] else set()
    problems = [*check_parts(found), *check_cycles(found, known), *check_imports(root)]
    for problem in problems:
        print(problem)
    print(f"layering: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
