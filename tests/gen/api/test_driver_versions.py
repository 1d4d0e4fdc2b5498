"""A name and a version of CUDA give the function that the driver gives, in shim and soft GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft._native import native_dir

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import driver_versions  # noqa: E402

# By version of the driver: a hash of all that NVIDIA's own libcuda.so.1 has answered, which needs no GPU
# for that: 535.261.03, 550.163.01, 555.58.02. Made by `driver_versions.py --driver LIB`.
DRIVERS = {12020: "0ee4e03d47546878", 12040: "0fc052825606f996", 12050: "042ee1ee43f6b153"}


@pytest.mark.parametrize("version", DRIVERS)
def test_the_table_answers_as_nvidias_driver(version: int) -> None:
    said = driver_versions.answers(driver_versions.known(), version)
    assert len(said) > 20_000
    assert driver_versions.digest(said) == DRIVERS[version]


def test_the_file_has_all_that_the_installed_headers_declare(
    need: Callable[[str, bool, str], None],
) -> None:
    need("vendor headers", bool(driver_versions.installed_text()), "they name the versions")
    assert driver_versions.missing() == [], "run tools/gen/driver_versions.py --update"


def test_numbers_of_functions_follow_from_versions() -> None:
    text = (
        "(CUDAAPI *PFN_cuFoo_v2000)(CUdeviceptr_v1 a);(CUDAAPI *PFN_cuFoo_v3020)(CUdeviceptr_v2 b);"
        "(CUDAAPI *PFN_cuFoo_v7000_ptsz)(CUdeviceptr_v2 b);(CUDAAPI *PFN_cuBar_v4000)(int *x[]);"
        "(CUDAAPI *PFN_cuBar_v12080)(int *y[]);"
    )
    lines = driver_versions.of_headers(text)
    assert lines == {"cuFoo": "2000 3020 ptsz 7000", "cuBar": "4000 =12080"}
    assert [row[1:] for row in driver_versions.rows("cuFoo", lines["cuFoo"])] == [
        (2000, False, "cuFoo", 0),
        (3020, False, "cuFoo_v2", 1),
        (7000, True, "cuFoo_v2_ptsz", 0),
    ]
    assert [row[4] for row in driver_versions.rows("cuBar", lines["cuBar"])] == [0, 0]


# Asks a library for all names in all versions, and says which exported function each answer is.
ASK = """
import ctypes, json, sys
here = ctypes.CDLL(None)
questions, symbols = json.load(sys.stdin)
def address(symbol):
    try: return ctypes.cast(getattr(here, symbol), ctypes.c_void_p).value
    except AttributeError: return None
of = {s: a for s in symbols if (a := address(s))}
out = []
for name, own, asked in questions:
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    flags = ctypes.c_ulonglong(2 if own else 0)
    code = here.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), asked, flags, ctypes.byref(status))
    out.append([code, status.value, found.value])
print(json.dumps([of, out]))
"""


def run(library: str, program: str, said: str = "") -> str:
    """Run Python in which a library stands before the vendor's."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYFT_AGENT", "PYFT_STRICT")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=variables | {"LD_PRELOAD": str(native_dir() / library)},
        input=said,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", ["libpyft_shim.so", "libsoftgpu.so"])
def test_every_answer_is_the_right_function_or_none(library: str) -> None:
    lines = driver_versions.known()
    expected = driver_versions.answers(lines, 99_999)
    alike = {
        row[3]: (row[0], row[4], row[2]) for n in lines for row in driver_versions.rows(n, lines[n])
    }
    symbols, answers = json.loads(run(library, ASK, json.dumps([list(expected), list(alike)])))
    found = 0
    for (question, symbol), (code, status, address) in zip(expected.items(), answers, strict=True):
        assert code == 0, question
        if address is None:
            assert symbol not in symbols, question
            assert status == (1 if symbol else 2), question
            continue
        found += 1
        assert status == 0, question
        if symbol in symbols:
            assert address == symbols[symbol], question
        else:  # another version, to which the same parameters are passed
            assert address in [a for s, a in symbols.items() if alike[s] == alike[symbol]], question
    assert found > 5000


EDGES = """
import ctypes
here = ctypes.CDLL(None)
found, status = ctypes.c_void_p(0x77), ctypes.c_int(-1)
def ask(name, version, flags, function="cuGetProcAddress_v2"):
    found.value, status.value = 0x77, -1
    more = () if function == "cuGetProcAddress" else (ctypes.byref(status),)
    code = getattr(here, function)(name, ctypes.byref(found), version, ctypes.c_ulonglong(flags), *more)
    print(code, status.value, {None: "null", 0x77: "kept"}.get(found.value, "set"))
ask(b"cuMemAlloc", 13000, 4)
ask(b"cuMemAlloc_v2", 13000, 0)
ask(b"cudaMalloc", 13000, 0)
ask(b"cuMemAllocAsync", 11000, 0)
ask(b"cuMemAlloc", -1, 3)
ask(b"nothing", 13000, 0, "cuGetProcAddress")
ask(b"cuMemAllocAsync", 11000, 0, "cuGetProcAddress")
ask(b"cuCtxSynchronize", 12000, 0, "cuGetProcAddress")
print(here.cuGetProcAddress_v2(b"nothing", ctypes.byref(found), 13000, ctypes.c_ulonglong(0), None))
"""


@pytest.mark.parametrize("library", ["libpyft_shim.so", "libsoftgpu.so"])
def test_what_is_no_name_is_answered_as_nvidias_driver_does(library: str) -> None:
    # Printed by libcuda.so.1 of 550.163.01.
    assert run(library, EDGES).splitlines() == [
        "1 -1 kept",
        "0 1 null",
        "0 1 null",
        "0 2 null",
        "0 0 set",
        "500 -1 kept",
        "500 -1 kept",
        "0 -1 set",
        "0",
    ]
