"""Refuse offsets in shared memory that are written by hand (`offsets.py [root]`).

The compiler says where fields are: tools/gen/gen_layout.py writes pyft/wire/layout.py, and
pyft/wire/view.py reads and writes by name. So

* in `pyft/` only the modules of USES_STRUCT import `struct`, and those of USES_MMAP `mmap`, each for
  its reason; only those of READS_AT read at a place in a file or memory object, no call names a
  number as a place, and the agent makes no numbers of bytes by `int.from_bytes`;
* in agent and trace reader no field is got from a descriptor, and only MAY_READ_WHOLE read files whole;
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
    "pyft/images/dump_stats.py": "the head of a file that CRIU has written",
    "pyft/images/leftovers.py": "what sock_diag is asked, and answers, of TCP connections",
    "pyft/images/netlink.py": "the frames of the kernel's netlink",
    "pyft/images/packet_filter.py": "a header of nf_tables, and ports as its sets have them",
    "pyft/images/sockets.py": "what sock_diag is asked, and answers, of Unix sockets",
    "pyft/wire/packet.py": "the header of a message, which is no shared memory",
    "pyft/wire/view.py": "the one place that reads and writes fields",
}
USES_MMAP = {
    "pyft/_native/linux.py": "addresses that are kept free, and the memory of a futex",
    "pyft/agent/channel/channel.py": "words by which a client is woken, written by name",
    "pyft/agent/process/criu_work.py": "three numbers between launcher and supervisor, by name",
}
READS_AT = {
    "pyft/agent/channel/untrusted.py": "the one place that reads what others can write",
    "pyft/flush/reader.py": "cells of a checkpoint's files, each with its digest",
    "pyft/images/contents.py": "files of an image",
    "pyft/wire/view.py": "fields of memory objects, by name",
}
READING = {"pread", "preadv"}
# Other ways to read what a client can write; a field that is got from a short object would raise.
READ_MEMORY = ("pyft/agent/", "pyft/trace/")
READS_WHOLE = {"read_bytes", "seek"}
MAY_READ_WHOLE = {
    "pyft/agent/process/notes.py": "notes, which nobody can write into",
}
# In these a number comes out of a record by its name.
NO_NUMBERS_OF_BYTES = "pyft/agent/"
# Of the tests, those that have to do with shared memory; the others know files of NVIDIA.
TESTS = ("tests/unit/", "tests/e2e/", "tests/wire/", "tests/sweep/", "bench/")
# Of view.py itself, and of what is refused here.
ITS_OWN_TESTS = {"tests/unit/test_layout.py", "tests/unit/test_offsets.py"}
MOST_VALUES = 4
# Calls of which an argument is a place, and which one.
PLACES = {"pread": 2, "preadv": 2, "pwrite": 2, "pwritev": 2, "unpack_from": 2, "pack_into": 2}
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


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """Yield all calls of something's function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func


def places_by_hand(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of every number that is a place."""
    for node, function in calls(tree):
        at = PLACES.get(function.attr, len(node.args))
        named = [keyword.value for keyword in node.keywords if keyword.arg == "offset"]
        for place in [*node.args[at : at + 1], *(named if function.attr in PLACES else [])]:
            if isinstance(place, ast.Constant) and place.value:
                yield node.lineno, f"{function.attr}() at [{place.value}]"


def by_hand(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of every place or record that is written by hand."""
    yield from places_by_hand(tree)
    for node, function in calls(tree):
        name = function.attr
        of_struct = isinstance(function.value, ast.Name) and function.value.id == "struct"
        form = text_of(node.args[0]) if node.args and of_struct and name in FORMATS else None
        if form and values_in(form) > MOST_VALUES:
            yield node.lineno, f"struct.{name}() of [{form}]"


def check_tests(file: str, tree: ast.AST) -> Iterator[str]:
    """Yield one sentence per offset or record of a test."""
    for before, program in programs(tree):
        for line, what in by_hand(program):
            yield f"{file}:{before + line}: {what}: pyft.wire.layout knows it by name"


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of all that is imported, `module.name` where it comes from a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def reads_past(file: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, call) of all that may read a client's memory without a look at its size."""
    if not file.startswith(READ_MEMORY):
        return
    for node, function in calls(tree):
        view = function.value.value if isinstance(function.value, ast.Subscript) else None
        of_view = isinstance(view, ast.Name) and view.id.isupper()
        whole = function.attr in READS_WHOLE and file not in MAY_READ_WHOLE
        if whole or (function.attr == "get" and of_view):
            yield node.lineno, f"{function.attr}()"


def check_product(file: str, tree: ast.AST) -> Iterator[str]:
    """Yield one sentence per way to read memory of others past the modules that may."""
    by_name = "pyft.wire.layout knows fields by name"
    for line, name in imports(tree):
        for module, users in (("struct", USES_STRUCT), ("mmap", USES_MMAP)):
            if name == module and file not in users:
                yield f"{file}:{line}: imports {module}: {by_name}"
        if name in {f"os.{one}" for one in READING}:
            yield f"{file}:{line}: imports {name}, which has to be seen where it is called"
    for line, what in places_by_hand(tree):
        yield f"{file}:{line}: {what}: {by_name}"
    for node, function in calls(tree):
        if function.attr in READING and file not in READS_AT:
            yield f"{file}:{node.lineno}: {function.attr}(): pyft/agent/channel/untrusted.py reads"
        if function.attr == "from_bytes" and file.startswith(NO_NUMBERS_OF_BYTES):
            yield f"{file}:{node.lineno}: from_bytes(): {by_name}"
    for line, call in reads_past(file, tree):
        yield f"{file}:{line}: {call}: pyft/agent/channel/untrusted.py reads"


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
