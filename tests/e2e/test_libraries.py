"""Libraries beside CUDA: what a soft GPU lacks is named; real GPUs without a driver are an error."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAM = Path(__file__).with_name("programs") / "libraries.py"
NAMED = {
    "cusparseCreateCsr": "the server's library lacks it",
}
# Two GPUs of a driver that does not exist.
NVML = """
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(i + 1ul); return 0; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned n) {
  text[0] = 'G', text[1] = '0' + (char)(long)h, text[2] = 0;
  return 0;
}
"""
ASK = (
    "import ctypes; p = ctypes.c_void_p(); print(ctypes.CDLL(None).cudaMalloc(ctypes.byref(p), 64))"
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYFT, "run", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_absent_libraries_are_named() -> None:
    done = run("--gpus", "soft:1", "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "fails" in line] == [
        f"{name} fails: True" for name in ("sparse",)
    ]
    assert "fft works" in done.stdout
    assert "convolution 1758.0" in done.stdout
    assert "solved 0.0\n" in done.stdout
    assert "sum 4.0 0" in done.stdout
    assert "eigenvalues 8.0\n" in done.stdout
    assert "singular 8.0\n" in done.stdout
    for function, why in NAMED.items():
        sentence = f"pyft: [{function}] is not supported: {why}"
        assert done.stderr.count(sentence) == 1, done.stderr
    assert "[cupti" not in done.stderr  # which PyTorch asks at its start
    assert done.stderr.count("pyft: cuDNN stays off: a soft GPU has none") == 1


def test_the_real_backend_without_a_driver_says_what_to_do(tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("[no driver]: there is one")
    except OSError:
        pass
    done = run("--gpus", "auto", "--", "true")
    assert done.returncode == 2
    assert "--gpus [auto]: no CUDA driver: use soft:N" in done.stderr
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("[compiler]: no C compiler")
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")], check=True
    )
    done = run("--gpus", "1", "--", sys.executable, "-c", ASK, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) != 0
    assert "no CUDA driver: use soft:N ([libcuda.so.1] does not load: " in done.stderr
