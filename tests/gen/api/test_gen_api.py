"""The generator refuses bad records with the record's name, and its outputs fit the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GENERATOR = ROOT / "tools" / "gen" / "gen_api.py"
PROTOTYPES = {
    "cudart": """# Two functions.
cudaError_t cudaBar(void *devPtr, cudaStream_t stream)
cudaError_t cudaFoo(void *devPtr, cudaStream_t stream)
""",
    "cublas": """cublasStatus_t cublasSfoo(cublasHandle_t handle, float *alpha)
cublasStatus_t cublasZfoo(cublasHandle_t handle, cuDoubleComplex *alpha)
""",
    "cufft": """cufftResult cufftFoo(cufftHandle plan, int rank, long long *n, double scale, size_t *work)
""",
}
GOOD = """
[cudaFoo]
id = 64
route = "async"
args = { devPtr = "device_ptr", stream = "stream" }
replay = "mutate"
support = "full"
"""
OBJECT = """
[cufftFoo]
id = 64
route = "sync"
args = { plan = "object:cufft_plan", n = "in:rank", work = "out" }
replay = "configure"
"""
FAMILY = """
[defaults]
route = "async"
replay = "mutate"

["cublas{SZ}foo"]
ids = [70, 65]
args = { handle = "cublas", alpha = "scalar:{t}" }
"""
BAD = {
    "unknown key [colour]": GOOD + 'colour = "red"\n',
    "[route] is [fast]": GOOD.replace('"async"', '"fast"'),
    "[replay] is [sometimes]": GOOD.replace('"mutate"', '"sometimes"'),
    "[creation] is [guessed]": GOOD + 'creation = "guessed"\n',
    "[note] is required": GOOD.replace('"full"', '"partial"'),
    "[cudaBaz]: no prototype: run tools/gen/prototypes.py cudaBaz": GOOD.replace("Foo", "Baz"),
    "a family has [ids], one for each of its letters": FAMILY.replace("70, 65", "70"),
    "[defaults] has the unknown key [id]": FAMILY.replace('route = "async"', "id = 3"),
    "argument [alpha]: annotation [scalar:{u}] is unknown": FAMILY.replace("{t}", "{u}"),
    "[args] names [nobody]": GOOD.replace("devPtr =", "nobody ="),
    "is a pointer without annotation": GOOD.replace('devPtr = "device_ptr", ', ""),
    "annotation [magic] is unknown": GOOD.replace('"device_ptr"', '"magic"'),
    "[id] is [12]": GOOD.replace("64", "12"),
    "[id] is [None]": GOOD.replace("id = 64\n", ""),
    "nothing crosses the ring": GOOD.replace('"async"', '"local"'),
    "[id] 64 is already used by [cudaFoo]": GOOD + GOOD.replace("cudaFoo", "cudaBar"),
    "[wire] is for hand-written commands": GOOD + 'wire = ["u64 a"]\n',
    "is not aligned": GOOD.replace('"async"', '"handwritten"') + 'wire = ["u32 a", "u64 b"]\n',
    "with a known type": GOOD.replace('"async"', '"handwritten"') + 'wire = ["float a"]\n',
    "route and support must both": GOOD.replace('"async"', '"unsupported"'),
    "is listed as a stub too": GOOD + '[symbols]\ncudart = ["cudaFoo"]\n',
    "object type [cufft_plane] does not exist": OBJECT.replace("cufft_plan", "cufft_plane"),
    "no [ranks]": OBJECT.replace("in:rank", "in:ranks"),
    "is not for [cudart]": GOOD.replace('"device_ptr"', '"object:cufft_plan"'),
    "Expected": "[cudaFoo",
}


def write(folder: Path, records: str) -> None:
    """Write a file of records, and the prototypes of those that it has."""
    (folder / "one.toml").write_text(records)
    (folder / "prototypes").mkdir()
    names = ("cudaFoo", "cudaBar", "cufftFoo", "cublas")
    has = [name for name in names if f"[{name}]" in records or f'["{name}{{' in records]
    for lib, text in PROTOTYPES.items():
        lines = [
            line for line in text.splitlines() if line[:1] == "#" or any(n in line for n in has)
        ]
        (folder / "prototypes" / f"{lib}.txt").write_text("\n".join(lines) + "\n")


def generate(api: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GENERATOR), "--api", str(api), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_good_record_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    result = generate(tmp_path, "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    commands = (tmp_path / "out" / "commands.h").read_text()
    assert (
        "struct cudaFoo {  // id 64, mutate\n  uint64_t devPtr;\n  uint64_t stream;\n};" in commands
    )
    assert "bool resolve" not in commands
    assert "resolve_stream(session, c.stream" in (tmp_path / "out" / "dispatch.cc").read_text()


def test_calls_of_objects_check_what_crosses_on_both_sides(tmp_path: Path) -> None:
    write(tmp_path, OBJECT)
    result = generate(tmp_path, "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    fields = "uint64_t plan;\n  uint64_t scale;\n  int32_t rank;\n  uint32_t n;"
    assert fields in (tmp_path / "out" / "commands.h").read_text()
    stubs = (tmp_path / "out" / "library_stubs.cc").read_text()
    assert "int cufftFoo(int plan, int rank, void* n, double scale, void* work)" in stubs
    assert "call.in(n, array_bytes(rank, 8), &body.n);" in stubs
    dispatch = (tmp_path / "out" / "library_dispatch.cc").read_text()
    assert "host.in(c.n, array_bytes(c.rank, 8))" in dispatch
    assert 'if (!host.ok()) return bad_arrays("cufftFoo");' in dispatch
    check = (tmp_path / "out" / "library_check.cc").read_text()
    assert "static_assert(same_class<cufftHandle, int>());" in check
    assert "static_assert(sizeof(long long) == 8);" in check
    table = (tmp_path / "out" / "backend_table.h").read_text()
    assert "int (*cufftFoo)(int, int, void*, double, void*) = nullptr;" in table


def test_a_family_is_one_record_for_all_its_letters(tmp_path: Path) -> None:
    write(tmp_path, FAMILY)
    result = generate(tmp_path, "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    commands = (tmp_path / "out" / "commands.h").read_text()
    assert "struct cublasSfoo {  // id 70, mutate" in commands
    assert "struct cublasZfoo {  // id 65, mutate" in commands
    stubs = (tmp_path / "out" / "client_stubs.cc").read_text()
    assert "cublasSfoo(cublasHandle_t handle, float * alpha)" in stubs
    assert "cublasZfoo(cublasHandle_t handle, cuDoubleComplex * alpha)" in stubs


def test_a_prototype_without_a_record_is_refused(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "prototypes" / "cublas.txt").write_text(PROTOTYPES["cublas"])
    result = generate(tmp_path, "--out", str(tmp_path / "out"))
    assert result.returncode == 1
    assert "cublas.txt: [cublasSfoo] has no record" in result.stderr


@pytest.mark.parametrize("why", BAD)
def test_a_bad_record_is_refused(tmp_path: Path, why: str) -> None:
    write(tmp_path, BAD[why])
    result = generate(tmp_path, "--out", str(tmp_path / "out"))
    assert result.returncode == 1
    assert "one.toml" in result.stderr or "[cudaFoo]" in result.stderr
    assert why in result.stderr


def test_the_coverage_page_is_fresh(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert generate(ROOT / "proxy" / "api", "--docs", str(page)).returncode == 0
    committed = (ROOT / "docs" / "api-coverage.md").read_text()
    assert page.read_text() == committed, "run tools/gen/gen_api.py --docs docs/api-coverage.md"
