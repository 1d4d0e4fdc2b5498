"""Prototypes are what the vendor's headers declare, as far as those are installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import prototypes  # noqa: E402


def test_the_files_agree_with_the_installed_headers(
    need: Callable[[str, bool, str], None],
) -> None:
    headers = prototypes.of_headers() if shutil.which("cc") else {}
    need("vendor headers", "cudart" in headers, "prototypes are compared with them")
    found = sum(
        name in headers.get(lib, {}) for lib, names in prototypes.known().items() for name in names
    )
    assert found > 300, "the headers have been read"
    assert prototypes.differences() == []


@pytest.mark.parametrize(
    ("text", "name", "prototype"),
    [
        ("extern CUresult cuFoo( void )", "cuFoo", "CUresult cuFoo()"),
        (
            "extern __attribute__((host)) cudaError_t\n cudaFoo(const float*const A[], int*n)",
            "cudaFoo",
            "cudaError_t cudaFoo(const float *const *A, int *n)",
        ),
        (
            "enum E { a }; const char * ncclFoo(void**x, long long int y[3])",
            "ncclFoo",
            "const char *ncclFoo(void **x, long long *y)",
        ),
    ],
)
def test_a_declaration_is_written_in_one_way(text: str, name: str, prototype: str) -> None:
    assert list(prototypes.declared(text)) == [(name, prototype)]


def test_a_function_belongs_to_the_library_of_its_name() -> None:
    names = ("cublasLtMatmul", "cublasGemmEx", "cudaMalloc", "cuInit", "ncclSend", "strlen")
    libraries = [prototypes.library_of(name) for name in names]
    assert libraries == ["cublasLt", "cublas", "cudart", "cuda", "nccl", ""]
