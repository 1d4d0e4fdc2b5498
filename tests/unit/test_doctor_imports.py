"""`pyft doctor --imports`: what a package needs of CUDA, read from its files."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft.cli import imports
from pyft.errors import NativeMissingError

SOURCE = """
extern int cudaMalloc(void **, unsigned long), cudaMallocArray(void), nvrtcVersion(int *, int *);
extern int cudaNoSuchFunction(void), ncclCommFinalize(void *), nvmlDeviceGetFanSpeed(void *, void *);
int cublasSaxpy_v2(void) { return 0; }
const char *names[] = {"cuMemAlloc", "cuGreenCtxCreate", "cuStreamNoSuch", "cudaMemcpyPeer",
                       "cuda is not a function", "cublasLtIsHere", "cuSparseHandle"};
int all(void) {
  return cudaMalloc(0, 0) + cudaMallocArray() + nvrtcVersion(0, 0) + cudaNoSuchFunction() +
         ncclCommFinalize(0) + nvmlDeviceGetFanSpeed(0, 0);
}
"""
EXPECTED = {
    ("cudaMalloc", "imported"): "served",
    ("cudaMallocArray", "imported"): "refused",
    ("nvrtcVersion", "imported"): "vendor",
    ("cudaNoSuchFunction", "imported"): "unknown",
    ("ncclCommFinalize", "imported"): "served",
    ("nvmlDeviceGetFanSpeed", "imported"): "forwarded",
    ("cuMemAlloc", "named"): "served",
    ("cuGreenCtxCreate", "named"): "refused",
    ("cuStreamNoSuch", "named"): "unknown",
    ("cudaMemcpyPeer", "named"): "partial",
}


@pytest.fixture
def library(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Path:
    compiler = shutil.which("cc")
    need("compiler", compiler is not None, "makes a library with imports")
    source, made = tmp_path / "extension.c", tmp_path / "package" / "extension.so"
    made.parent.mkdir()
    source.write_text(SOURCE)
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    (made.parent / "script.so").write_text("INPUT(libc.so.6)")
    return made


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyft", "doctor", "--imports", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")


def test_each_function_is_classed(library: Path) -> None:
    rows = json.loads(doctor(str(library), "--json").stdout)
    found = {(row["function"], row["by"]): row["how"] for row in rows}
    expected = dict(EXPECTED)
    assert {key: found[key] for key in expected} == expected
    assert set(found) == set(expected)


def test_a_folder_and_a_wheel_are_read_alike(library: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "package-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(library, "package/extension.so")
        file.writestr("package/readme.txt", "cuMemAlloc\0")
    texts = [doctor(str(place)).stdout.splitlines() for place in (library.parent, wheel)]
    assert texts[0][0].endswith(": 1 shared objects")
    assert texts[0][1:] == texts[1][1:]
    assert any("cudaNoSuchFunction" in line and "extension.so" in line for line in texts[0])


def test_nothing_to_read_is_said() -> None:
    done = doctor("no-such-package-anywhere")
    assert done.returncode == 1
    assert (
        "[no-such-package-anywhere] is no installed package, no file and no folder" in done.stderr
    )


def test_a_damaged_file_is_no_library(tmp_path: Path, library: Path) -> None:
    """Each cut and some changed bytes of a real one: never anything but rows or one sentence."""
    data = library.read_bytes()
    damaged = tmp_path / "damaged.so"
    cuts = [data[:size] for size in range(0, len(data), 1999)]
    flips = [
        data[:at] + b"\xff" * 4 + data[at + 4 :]
        for at in [*range(0, 64, 4), *range(64, len(data), 509)]
    ]
    for content in [*cuts, *flips]:
        damaged.write_bytes(content)
        with contextlib.suppress(imports.ImportsError):
            assert len(imports.objects_of(str(damaged))) == 1


def test_what_cannot_be_read_is_named(library: Path, tmp_path: Path) -> None:
    """In front of rows that lack it, or in one sentence where there is nothing else."""
    (library.parent / "damaged.so").write_bytes(library.read_bytes()[:1000])
    wheel = tmp_path / "package-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(library, "package/extension.so")
        file.write(library, "package/torn.so")
    data = bytearray(wheel.read_bytes())
    data[data.rindex(b"PK\3\4") + 1000] ^= 0xFF  # in the last file's own bytes
    wheel.write_bytes(data)
    for place, left_out in ((library.parent, "damaged.so"), (wheel, "torn.so")):
        said: list[str] = []
        assert [Path(one.name).name for one in imports.objects_of(str(place), said.append)] == [
            "extension.so"
        ]
        assert len(said) == 1
        assert left_out in said[0]
    wheel.write_text("no wheel")
    for target in (str(wheel), "a" * 5000):
        with pytest.raises(imports.ImportsError, match="is no wheel|cannot be read"):
            imports.objects_of(target)


def test_a_file_of_another_user_is_left_out(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library.parent / "secret.so").write_bytes(library.read_bytes())
    opened = Path.open

    def refuse(path: Path, *mode: str) -> object:
        if path.name == "secret.so":
            raise PermissionError(13, "Permission denied")
        return opened(path, *mode)

    monkeypatch.setattr(Path, "open", refuse)
    said: list[str] = []
    assert len(imports.objects_of(str(library.parent), said.append)) == 1
    assert [line for line in said if "secret.so" in line and "Permission denied" in line]


def test_without_native_files_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coverage.json").write_text("[]")
    monkeypatch.setenv("PYFT_NATIVE_DIR", str(tmp_path))
    with pytest.raises(NativeMissingError, match="install pyft again"):
        imports.installed_calls()


@pytest.mark.long
def test_pytorch_imports_nothing_that_is_unknown(need: Callable[[str, bool, str], None]) -> None:
    import importlib.util

    need("torch", importlib.util.find_spec("torch") is not None, "its libraries are read")
    rows = json.loads(doctor("torch", "--json").stdout)
    assert sum(row["by"] == "imported" for row in rows) > 500
    unknown = [
        row["function"] for row in rows if (row["how"], row["by"]) == ("unknown", "imported")
    ]
    # NVSHMEM's is in no list: what needs it is refused before, by name.
    assert set(unknown) <= {"nvshmem_init"}
