"""Compile a kernel for all architectures: `compile_kernel.py SOURCE INCLUDE_FOLDER LIBNVRTC OUT.cc`.

OUT.cc has one image for each architecture that NVRTC knows and PTX for later ones. NVRTC is in a
package that PyTorch needs itself, so no CUDA toolkit has to be there. With an empty LIBNVRTC there
are no images, and a request for one is told so.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

PTX_FOR = 75


class Nvrtc:
    """The functions of the library that are needed."""

    def __init__(self, path: str) -> None:
        # It opens its other half by name, which is in no folder that is searched.
        for other in Path(path).parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(other), ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(path)

    def call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise SystemExit(f"compile_kernel: [{name}] fails with [{code}]")

    def architectures(self) -> list[int]:
        count = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", found)
        return sorted(found)

    def compile(self, source: Path, target: str, include: str) -> ctypes.c_void_p:
        program = ctypes.c_void_p()
        text, name = source.read_bytes(), source.name.encode()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text, name, 0, None, None)
        options = [
            f"--gpu-architecture={target}",
            f"--include-path={include}",
            "--std=c++17",
            "--device-int128",
        ]
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if self._library.nvrtcCompileProgram(program, len(options), words):
            log = self.output(program, "ProgramLog").decode()
            raise SystemExit(f"compile_kernel: [{source}] for [{target}]:\n{log}")
        return program

    def output(self, program: ctypes.c_void_p, kind: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        bytes_ = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, bytes_)
        return bytes_.raw


def images(nvrtc: Nvrtc, source: Path, include: str) -> list[tuple[int, bytes]]:
    """Return machine code by architecture, and PTX as that of architecture 0."""
    found = []
    for number in nvrtc.architectures():
        program = nvrtc.compile(source, f"sm_{number}", include)
        found.append((number, nvrtc.output(program, "CUBIN")))
    program = nvrtc.compile(source, f"compute_{PTX_FOR}", include)
    return [*found, (0, nvrtc.output(program, "PTX"))]


def write(found: list[tuple[int, bytes]]) -> str:
    """Return C++ text that defines the images."""
    lines = ['#include "server/digest/images.h"', "", "namespace pyft::server {", "namespace {", ""]
    for number, image in found:
        lines.append(f"alignas(16) const unsigned char image_{number}[] = {{")
        lines += [
            "  " + ",".join(str(byte) for byte in image[at : at + 32]) + ","
            for at in range(0, len(image), 32)
        ]
        lines.append("};")
    rows = [f"  {{{number}, image_{number}, sizeof image_{number}}}," for number, _ in found]
    if rows:
        lines += ["", "const KernelImage kImages[] = {", *rows, "};"]
    text = "return kImages;" if rows else "return {};"
    lines += ["", "}  // namespace", "", "std::span<const KernelImage> digest_images() {"]
    lines += [f"  {text}", "}", "", "}  // namespace pyft::server", ""]
    return "\n".join(lines)


def main() -> None:
    source, include, library, out = sys.argv[1:]
    found = images(Nvrtc(library), Path(source), include) if library else []
    Path(out).write_text(write(found))


if __name__ == "__main__":
    main()
