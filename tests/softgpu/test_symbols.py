"""The list of vendor symbols is complete for the installed wheel, and every one is exported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))
sys.path.insert(0, str(Path(__file__).parent))

import gen_softgpu_stubs as gen  # noqa: E402
from test_torch_direct import native_dir  # noqa: E402

LIBRARIES = ["torch_cuda", "c10_cuda", "torch_python", "torch_cpu", "caffe2_nvrtc",
             "torch_nvshmem", "torch_cuda_linalg"]  # fmt: skip


def listed() -> set[str]:
    """Return all symbols of symbols.txt."""
    sections = gen.read_symbols(ROOT / "softgpu" / "api" / "symbols.txt")
    return {name for names in sections.values() for name in names}


def wheel_symbols() -> set[str]:
    """Return the vendor symbols that the installed wheel imports."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("[torch]: it is not installed")
    folder = Path(spec.origin).parent / "lib"
    found: set[str] = set()
    for name in LIBRARIES:
        library = folder / f"lib{name}.so"
        if library.exists():
            found |= gen.undefined_symbols(library)
    if not found:
        pytest.skip("[torch]: a build without CUDA")
    return found


def test_list_covers_the_wheel() -> None:
    assert wheel_symbols() - listed() == set()


def test_every_symbol_is_exported() -> None:
    library = native_dir() / "libsoftgpu.so"
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    exported |= {name[: name.rfind("_v")] for name in exported if name[-3:-1] == "_v"}
    assert listed() - exported == set()


def test_stubs_are_known_by_their_names() -> None:
    """In a process of its own: the library is called libcuda.so.1."""
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]);"
        "print(*(n for n in sys.argv[2:] if library.softgpu_is_stub(n.encode())))"
    )
    solvers = [name for name in listed() if name.startswith("cusolver")]
    names = [*solvers, "cusparseCreate", "cusparseCreateCsr", "cudnnCreate", "cudnnNever"]
    done = subprocess.run(
        [sys.executable, "-c", program, str(native_dir() / "libsoftgpu.so"), *names],
        check=True,
        capture_output=True,
        text=True,
    )
    assert len(solvers) > 100
    assert done.stdout.split() == ["cusparseCreateCsr", "cudnnCreate"]
