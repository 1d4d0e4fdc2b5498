"""The shim has every function that the vendor's libraries export: served, or named when called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft._native import native_dir

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import vendor_exports  # noqa: E402

SHIM = native_dir() / "libpyft_shim.so"

# Function, its result type for ctypes, what it answers without being served.
UNSERVED = [
    ("cudaMallocArray", "c_int", 801),
    ("cudaMemPoolCreate", "c_int", 801),
    ("cudaMemcpy3DBatchAsync_ptsz", "c_int", 801),
    ("cublasSgemm_v2_64", "c_int", 15),
    ("cublasSdot", "c_float", 0.0),
    ("cublasIsamax", "c_int", 0),
    ("cublasLtMatmulAlgoConfigGetAttribute", "c_int", 15),
    ("cudnnLRNCrossChannelForward", "c_int", 3000),
    ("cusparseAxpby", "c_int", 10),
    ("ncclCommRevoke", "c_int", 5),
    ("pncclCommRevoke", "c_int", 5),
    ("ncclTeamRankToWorld", "c_int", 0),
]


def names_of(library: Path) -> set[str]:
    command = ["nm", "-D", "--defined-only", str(library)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[2].partition("@")[0] for line in listing.splitlines()}


@pytest.fixture
def libraries(need: Callable[[str, bool, str], None]) -> dict[str, set[str]]:
    found = bool(shutil.which("nm") and vendor_exports.installed("cudart"))
    need("vendor libraries", found, "nm reads what they export")
    return {
        lib: vendor_exports.exported_names(lib, vendor_exports.installed(lib))
        for lib in vendor_exports.LIBRARIES
    }


def test_the_lists_know_all_that_is_installed(libraries: dict[str, set[str]]) -> None:
    assert all(libraries.values()), "each library was found"
    assert vendor_exports.missing() == {}, "run tools/gen/vendor_exports.py --update"


@pytest.mark.parametrize("lib", vendor_exports.LIBRARIES)
def test_no_call_reaches_the_vendors_library(lib: str, libraries: dict[str, set[str]]) -> None:
    ours = names_of(SHIM)
    assert sorted(libraries[lib] - ours) == []
    assert sorted(set(vendor_exports.read(vendor_exports.FOLDER)[lib]) - ours) == []


def call(program: str) -> subprocess.CompletedProcess[str]:
    """Run Python in which the shim stands before the vendor's libraries, as in a job."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYFT_AGENT", "PYFT_STRICT")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=variables | {"LD_PRELOAD": str(SHIM)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_not_served_names_itself() -> None:
    wanted = UNSERVED
    lines = ["import ctypes", "here = ctypes.CDLL(None)"]
    for name, result, _ in wanted:
        lines += [f"f = here.{name}; f.restype = ctypes.{result}; print(f(), f())"]
    lines.append("print(here.cudaGetLastError(), here.cudaGetLastError())")
    done = call("\n".join(lines))
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert answers == [*(f"{answer} {answer}" for _, _, answer in wanted), "801 0"]
    said = [line for line in done.stderr.splitlines() if "is not supported" in line]
    assert said == [f"pyft: [{name}] is not supported" for name, _, _ in wanted]


def test_nccls_second_names_are_the_same_functions() -> None:
    done = call(
        "import ctypes; here = ctypes.CDLL(None); a, b = ctypes.c_int(), ctypes.c_int()\n"
        "print(here.ncclGetVersion(ctypes.byref(a)), here.pncclGetVersion(ctypes.byref(b)))\n"
        "print(a.value == b.value > 20000)"
    )
    assert done.stdout == "0 0\nTrue\n", done.stderr


def test_a_description_of_a_texel_is_only_put_together() -> None:
    done = call(
        "import ctypes\n"
        "class Texel(ctypes.Structure): _fields_ = [(c, ctypes.c_int) for c in 'xyzwf']\n"
        "f = ctypes.CDLL(None).cudaCreateChannelDesc; f.restype = Texel\n"
        "t = f(32, 16, 8, 0, 2); print(t.x, t.y, t.z, t.w, t.f)"
    )
    assert done.stdout == "32 16 8 0 2\n", done.stderr
