"""Print what cuBLASLt answers about every attribute of its descriptors: sizes, defaults, refusals.

cublaslt_descriptors.py LIBRARY    a file, or "-" for what the process has already
"""

from __future__ import annotations

import ctypes
import sys

MATMUL, LAYOUT, PREFERENCE = "MatmulDesc", "MatrixLayout", "MatmulPreference"
COMPUTE_TYPES = {"float": (68, 0), "half": (64, 2), "double": (70, 1), "int": (72, 10)}
ATTRIBUTES = {MATMUL: 50, LAYOUT: 14, PREFERENCE: 20}  # numbers that are tried
ROOM = 64

library = ctypes.CDLL(None if sys.argv[1] == "-" else sys.argv[1])


def create(kind: str, *arguments: object) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    status = getattr(library, f"cublasLt{kind}Create")(ctypes.byref(made), *arguments)
    print(kind, "created", status)
    return made


def get(kind: str, of: ctypes.c_void_p, attribute: int, bytes: int) -> tuple[int, int, str]:
    """Return the status, the size that is told, and the value."""
    told, value = ctypes.c_size_t(), (ctypes.c_ubyte * ROOM)()
    function = getattr(library, f"cublasLt{kind}GetAttribute")
    status = function(of, attribute, value, ctypes.c_size_t(bytes), ctypes.byref(told))
    return status, told.value, memoryview(value)[:bytes].hex()


def put(kind: str, to: ctypes.c_void_p, attribute: int, value: int, bytes: int) -> int:
    given = (ctypes.c_ubyte * ROOM)(value)
    function = getattr(library, f"cublasLt{kind}SetAttribute")
    return function(to, attribute, given, ctypes.c_size_t(bytes))


def probe(kind: str, descriptor: ctypes.c_void_p) -> None:
    """All attributes are set in the end: as many as a descriptor can have."""
    for attribute in range(ATTRIBUTES[kind]):
        _, size, _ = get(kind, descriptor, attribute, 0)
        default = get(kind, descriptor, attribute, size)
        refused = [put(kind, descriptor, attribute, 1, size + more) for more in (-1, 1) if size]
        unknown = put(kind, descriptor, attribute, 1, 4) if not size else 0
        kept = []
        for value in (1, 3):
            status = put(kind, descriptor, attribute, value, size)
            kept.append((status, get(kind, descriptor, attribute, size)))
        print(kind, attribute, size, default, refused, unknown, kept)


for name, types in COMPUTE_TYPES.items():
    print(name)
    probe(MATMUL, create(MATMUL, *types))
probe(LAYOUT, create(LAYOUT, 0, ctypes.c_uint64(64), ctypes.c_uint64(32), ctypes.c_int64(64)))
probe(PREFERENCE, create(PREFERENCE))
