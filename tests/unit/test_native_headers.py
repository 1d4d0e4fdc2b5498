"""Bindings with ctypes repeat prototypes and structs of headers: the compiler compares them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyft import _native
from pyft._native import flexccl

ROOT = Path(__file__).resolve().parents[2]
Structs = dict[str, type[ctypes.Structure]]
STRUCTS: dict[str, Structs] = {
    "flexccl/include/flexccl.h": {
        "ncclUniqueId": flexccl.UniqueId,
        "flexcclInfo_t": flexccl.Info,
        "flexcclChild_t": flexccl.Child,
        "flexcclState_t": flexccl.State,
    },
    "proxy/native/native.h": {
        "PyftTraceEntry": _native.TraceEntry,
        "PyftTraceInfo": _native.TraceInfo,
    },
}
LIBRARIES = {"flexccl/include/flexccl.h": "flexccl", "proxy/native/native.h": "pyft_native"}
# Prints a line for each function: its name, and the kind and size of each argument.
SHOW = """
#include <cstdio>
#include <type_traits>

template <class T>
void show_one() {
  const char kind = std::is_pointer_v<T> ? 'p' : std::is_class_v<T> ? 's' : 'i';
  std::printf(" %c%zu", kind, sizeof(T));
}

template <class Result, class... Arguments>
void show(const char* name, Result (*)(Arguments...)) {
  std::printf("%s", name);
  (show_one<Arguments>(), ...);
  std::printf("\\n");
}

int main() {
"""


def kind_of(argument: Any) -> str:
    """Return what the program prints for a type of ctypes."""
    if issubclass(argument, ctypes.Structure):
        return f"s{ctypes.sizeof(argument)}"
    pointer = argument in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(argument, "contents")
    return f"{'p' if pointer else 'i'}{ctypes.sizeof(argument)}"


def functions(header: str) -> dict[str, list[Any]]:
    """Return the types of arguments by name, as the binding has them."""
    if LIBRARIES[header] == "pyft_native":
        return {name: arguments for name, (_, arguments) in _native._FUNCTIONS.items()}
    library = flexccl.library()
    names = [*flexccl._CHECKED, "ncclGetErrorString", "ncclGetLastError"]
    return {name: getattr(library, name).argtypes for name in names}


def of_functions(found: dict[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """Yield what the program says, and what it has to print."""
    for name, arguments in found.items():
        yield f'show("{name}", &{name});', " ".join([name, *map(kind_of, arguments)])


def of_structs(structs: Structs) -> Iterator[tuple[str, str]]:
    for name, struct in structs.items():
        yield f'std::printf("{name} %zu\\n", sizeof({name}));', f"{name} {ctypes.sizeof(struct)}"
        for field, *_ in struct._fields_:
            if field == "padding":
                continue
            where = f"offsetof({name}, {field}), sizeof({name}::{field})"
            found = getattr(struct, field)
            expected = f"{name}.{field} {found.offset} {found.size}"
            yield f'std::printf("{name}.{field} %zu %zu\\n", {where});', expected


@pytest.mark.parametrize("header", STRUCTS)
def test_prototypes_and_structs_are_those_of_the_header(
    header: str, tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    folder, path = _native.native_dir(), ROOT / header
    need("compiler", bool(shutil.which("c++")), "no C++ compiler")
    built = (folder / f"lib{LIBRARIES[header]}.so").exists()
    need("build", built, f"lib{LIBRARIES[header]}.so is not built")
    pairs = [*of_functions(functions(header)), *of_structs(STRUCTS[header])]
    source, program = tmp_path / "show.cc", tmp_path / "show"
    lines = "\n".join(line for line, _ in pairs)
    source.write_text(f'#include "{path.name}"\n{SHOW}{lines}\n}}\n')
    command = ["c++", "-std=c++20", f"-I{path.parent}", str(source), "-o", str(program)]
    library = [f"-L{folder}", f"-l{LIBRARIES[header]}", f"-Wl,-rpath,{folder}"]
    subprocess.run([*command, *library], check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [expected for _, expected in pairs]
