"""The binding of flexccl repeats prototypes and structs of its header: the compiler compares them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyft._native import flexccl

HEADER = Path(__file__).resolve().parents[2] / "flexccl" / "include" / "flexccl.h"
STRUCTS = {"ncclUniqueId": flexccl.UniqueId, "flexcclInfo_t": flexccl.Info}
STRUCTS |= {"flexcclChild_t": flexccl.Child, "flexcclState_t": flexccl.State}
# Prints a line for each function: its name, and the kind and size of each argument.
SHOW = """
#include <cstdio>
#include <type_traits>
#include "flexccl.h"

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


def functions() -> dict[str, list[Any]]:
    library = flexccl.library()
    names = [*flexccl._CHECKED, "ncclGetErrorString", "ncclGetLastError"]
    return {name: getattr(library, name).argtypes for name in names}


def test_prototypes_and_structs_are_those_of_the_header(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("compiler", bool(shutil.which("c++")), "no C++ compiler")
    need("build", (flexccl.native_dir() / "libflexccl.so").exists(), "libflexccl.so is not built")
    lines = [f'  show("{name}", &{name});' for name in functions()]
    expected = [" ".join([name, *map(kind_of, of)]) for name, of in functions().items()]
    for name, struct in STRUCTS.items():
        lines.append(f'  std::printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            if field == "padding":
                continue
            where = f"offsetof({name}, {field}), sizeof({name}::{field})"
            lines.append(f'  std::printf("{name}.{field} %zu %zu\\n", {where});')
            found = getattr(struct, field)
            expected.append(f"{name}.{field} {found.offset} {found.size}")
    source, program = tmp_path / "show.cc", tmp_path / "show"
    source.write_text(SHOW + "\n".join(lines) + "\n}\n")
    command = ["c++", "-std=c++20", f"-I{HEADER.parent}", str(source), "-o", str(program)]
    library = ["-L" + str(flexccl.native_dir()), "-lflexccl", f"-Wl,-rpath,{flexccl.native_dir()}"]
    subprocess.run([*command, *library], check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == expected
