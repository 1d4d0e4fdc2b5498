"""Refuse includes and imports that go against the layering (`layering.py [root]`).

shim -> client -> ring <- server -> backend; softgpu and flexccl include nothing of ours but
themselves; client and server never include each other; only pyft/torch_support imports torch;
Python reaches native code only through pyft._native.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# part -> folders whose headers it may include (besides its own and generated ones)
MAY_INCLUDE = {
    "softgpu": set(),
    "flexccl": set(),
    "proxy/ring": {"proxy/include"},
    "proxy/include": set(),
    "proxy/backend": {"proxy/include"},
    "proxy/client": {"proxy/ring", "proxy/include"},
    "proxy/server": {"proxy/ring", "proxy/include", "proxy/backend"},
    "proxy/collectives": set(),
    "shim": {"proxy/client", "proxy/include"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# How an include path names the folder it comes from (include roots are proxy/, softgpu/, …).
PREFIXES = {
    "ring/": "proxy/ring",
    "client/": "proxy/client",
    "server/": "proxy/server",
    "backend/": "proxy/backend",
    "pyft/": "proxy/include",
    "softgpu/": "softgpu",
    "flexccl/": "flexccl",
    "core/": "softgpu",
    "exec/": "softgpu",
    "decode/": "softgpu",
    "loader/": "softgpu",
    "shim/": "shim",
}


def part_of(path: Path, root: Path) -> str | None:
    """Return the longest part name that `path` lies in."""
    relative = path.relative_to(root).as_posix()
    found = [part for part in MAY_INCLUDE if relative.startswith(part + "/")]
    return max(found, key=len, default=None)


def included_part(include: str) -> str | None:
    """Return the part an include path names, None for generated and system headers."""
    for prefix, part in PREFIXES.items():
        if include.startswith(prefix):
            return part
    return None


def check_includes(root: Path) -> Iterator[str]:
    """Yield one sentence per forbidden #include."""
    for path in sorted(
        p for top in ("softgpu", "flexccl", "proxy", "shim") for p in (root / top).rglob("*")
    ):
        if path.suffix not in {".cc", ".h"}:
            continue
        part = part_of(path, root)
        if part is None:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            target = included_part(match.group(1)) if match else None
            if target in (None, part) or target in MAY_INCLUDE[part]:
                continue
            if (root / part / match.group(1)).exists():  # flexccl has a core/ of its own
                continue
            yield (
                f"{path.relative_to(root)}:{number}: [{part}] may not include "
                f"[{match.group(1)}] of [{target}]"
            )


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, top-level module) of every import in a module."""
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
    problems = [*check_includes(root), *check_imports(root)]
    for problem in problems:
        print(problem)
    print(f"layering: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
