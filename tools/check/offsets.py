"""Refuse offsets in shared memory that are written by hand (`offsets.py [root]`).

The compiler says where fields are: tools/gen/gen_layout.py writes pyft/wire/layout.py, and
pyft/wire/view.py reads and writes by name. So

* in `pyft/` only the modules of USES_STRUCT import `struct`, each for its reason;
* in the tests of agent, server and jobs no call names a number as a place in memory, and none packs
  or unpacks more than MOST_VALUES values at once. The programs that tests keep as text count too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

USES_STRUCT = {
    "pyft/_native/linux.py": "credentials at a socket, as the kernel has them",
    "pyft/agent/process/losses.py": "what the kernel says of a process that has ended",
    "pyft/flexccl/types.py": "one number as float16, bfloat16, …",
    "pyft/hosts/relay/pair.py": "the header of a datagram between hosts",
    "pyft/images/sockets.py": "messages of the kernel's netlink",
    "pyft/wire/packet.py": "the header of a message, which is no shared memory",
    "pyft/wire/view.py": "the one place that reads and writes fields",
}
# Of the tests, those that have to do with shared memory; the others know files of NVIDIA.
TESTS = ("tests/unit/", "tests/e2e/", "tests/wire/", "tests/sweep/", "bench/")
# Of view.py itself, and of what is refused here.
ITS_OWN_TESTS = {"tests/unit/test_layout.py", "tests/unit/test_offsets.py"}
MOST_VALUES = 4
# Calls of which an argument is a place, and which one.
PLACES = {"pread": 2, "pwrite": 2, "unpack_from": 2, "pack_into": 2}
FORMATS = {"Struct", "pack", "unpack", "pack_into", "unpack_from", "iter_unpack", "calcsize"}
PROGRAM = re.compile(r"^\s*(import|from) \w", re.MULTILINE)


def values_in(form: str) -> int:
    """Return how many values a format of `struct` has."""
    found = re.findall(r"(\d*)([a-zA-Z?])", form)
    return sum(1 if kind in "sp" else int(count or 1) for count, kind in found if kind != "x")


def text_of(node: ast.expr) -> str | None:
    """Return what a string says, with a name where an f-string takes a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "value" for part in node.values)
    return None


def programs(tree: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """Yield a module, and the Python programs that it keeps as text, with the line before each."""
    yield 0, tree
    for node in ast.walk(tree):
        text = text_of(node) if isinstance(node, ast.expr) else None
        if text and PROGRAM.search(text):
            try:
                yield node.lineno - 1, ast.parse(text)
            except SyntaxError:
                continue


def by_hand(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of every place or record that is written by hand."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        place = (
            node.args[PLACES[name]] if name in PLACES and len(node.args) > PLACES[name] else None
        )
        if isinstance(place, ast.Constant) and place.value:
            yield node.lineno, f"{name}() at [{place.value}]"
        of_struct = isinstance(node.func.value, ast.Name) and node.func.value.id == "struct"
        form = text_of(node.args[0]) if node.args and of_struct and name in FORMATS else None
        if form and values_in(form) > MOST_VALUES:
            yield node.lineno, f"struct.{name}() of [{form}]"


def check_tests(file: str, tree: ast.AST) -> Iterator[str]:
    """Yield one sentence per offset or record of a test."""
    for before, program in programs(tree):
        for line, what in by_hand(program):
            yield f"{file}:{before + line}: {what}: pyft.wire.layout knows it by name"


def check_product(file: str, tree: ast.AST) -> Iterator[str]:
    """Yield one sentence per module that imports `struct` without a reason."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        if "struct" in names and file not in USES_STRUCT:
            yield f"{file}:{node.lineno}: imports struct: pyft.wire.layout knows fields by name"


def problems(root: Path) -> Iterator[str]:
    """Yield one sentence per mistake."""
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    known = done.stdout.splitlines() if done.returncode == 0 else []
    for path in [root / name for name in known] or sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if path.suffix != ".py" or not path.is_file() or file in ITS_OWN_TESTS:
            continue
        if file.startswith("pyft/"):
            yield from check_product(file, ast.parse(path.read_text()))
        elif file.startswith(TESTS):
            yield from check_tests(file, ast.parse(path.read_text()))


def main() -> int:
    found = list(problems(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    for problem in found:
        print(problem)
    print(f"offsets: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
