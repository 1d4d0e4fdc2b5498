"""Load a fat binary cut down to its one sm_75 entry, as the proxy's client sends it, and
ask the driver API for every kernel's parameters."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

import torch

library = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
driver = ctypes.CDLL("libcuda.so.1")
MAGIC, ENTRY_ARCH, SM_75 = struct.pack("<IHH", 0xBA55ED50, 1, 16), 28, 75


def mini_fatbins(limit: int) -> list[bytes]:
    """Return the sm_75 entries of the first fat binaries of the wheel, each with a new header."""
    found = []
    with library.open("rb") as file:
        data = file.read()
    at = data.find(MAGIC)
    while at >= 0 and len(found) < limit:
        end = at + 16 + struct.unpack_from("<Q", data, at + 8)[0]
        entry = at + 16
        while entry < end:
            header, payload = struct.unpack_from("<IQ", data, entry + 4)
            if struct.unpack_from("<I", data, entry + ENTRY_ARCH)[0] == SM_75:
                body = data[entry : entry + header + payload]
                found.append(MAGIC + struct.pack("<Q", len(body)) + body)
            entry += header + payload
        at = data.find(MAGIC, end)
    return found


def check(code: int) -> None:
    if code:
        sys.exit(f"driver call failed with {code}")


torch.cuda.init()
torch.ones(1, device="cuda")
kernels = 0
for image in mini_fatbins(12):
    module = ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), image))
    count = ctypes.c_uint()
    check(driver.cuModuleGetFunctionCount(ctypes.byref(count), module))
    functions = (ctypes.c_void_p * count.value)()
    check(driver.cuModuleEnumerateFunctions(functions, count, module))
    for function in functions:
        name = ctypes.c_char_p()
        check(driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(function)))
        offset, size, index, end = ctypes.c_size_t(), ctypes.c_size_t(), 0, 0
        while not driver.cuFuncGetParamInfo(
            ctypes.c_void_p(function),
            ctypes.c_size_t(index),
            ctypes.byref(offset),
            ctypes.byref(size),
        ):
            if offset.value < end:
                sys.exit(f"parameter {index} of {name.value!r} overlaps the one before")
            end = offset.value + size.value
            index += 1
        again = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(again), module, name))
        if again.value != function:
            sys.exit(f"two handles for {name.value!r}")
        kernels += 1
    check(driver.cuModuleUnload(module))
print(kernels, "kernels")
