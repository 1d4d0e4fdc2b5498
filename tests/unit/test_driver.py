"""The driver, or what stands for one, as processes find it: its GPUs, its version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyft._native import driver, linux, native_dir

NVML = """
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(i + 1ul); return 0; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned n) {
  for (int i = 0; i < 6; ++i) text[i] = "GPU-a"[i];
  text[4] += (char)((unsigned long)h - 1);
  return 0;
}
"""


CUDA = """
#include <string.h>
int cuInit(unsigned flags) { return CODE; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int n) { *device = n; return 0; }
int cuDeviceGetUuid_v2(char *bytes, int device) { memset(bytes, 16 + device, 16); return 0; }
"""


def nvml_is_here() -> bool:
    return linux.loads("libnvidia-ml.so.1")


def ends(
    folder: Path, library: str, text: str, command: list[str], **variables: str
) -> tuple[str, str]:
    """Return what a program that finds this library prints, and its last line of errors."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("[compiler]: no C compiler")
    source = folder / "driver.c"
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / library, source], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.stdout, done.stderr.strip().rpartition("\n")[2]


def asked(folder: Path, library: str, text: str, **variables: str) -> tuple[str, str]:
    """Return what the driver's GPUs are for a process that finds this library."""
    program = [sys.executable, "-c", "from pyft._native import driver; print(driver.gpus())"]
    return ends(folder, library, text, program, **variables)


def test_the_driver_is_asked_through_nvml(tmp_path: Path) -> None:
    assert asked(tmp_path, "libnvidia-ml.so.1", NVML)[0] == "['GPU-a', 'GPU-b']\n"


def test_without_nvml_the_driver_is_asked_itself(tmp_path: Path) -> None:
    """As in containers that are given what computes and no more; hidden GPUs count as in NVML."""
    if nvml_is_here():
        pytest.skip("[no driver]: this machine has NVML")
    text = CUDA.replace("CODE", '(getenv("CUDA_VISIBLE_DEVICES") != 0)')
    text = "#include <stdlib.h>\n" + text
    found, end = asked(tmp_path, "libcuda.so.1", text, CUDA_VISIBLE_DEVICES="1")
    first = "GPU-10101010-1010-1010-1010-101010101010"
    assert found == f"['{first}', '{first.replace('10', '11')}']\n", end


def test_a_driver_without_gpus_is_named(tmp_path: Path) -> None:
    if nvml_is_here():
        pytest.skip("[no driver]: this machine has NVML")
    found, end = asked(tmp_path, "libcuda.so.1", CUDA.replace("CODE", "100"))
    assert (found, end.endswith("; [cuInit] fails with code [100]")) == ("", True), end
    assert "libnvidia-ml.so.1" in end


def test_a_machine_without_a_driver_is_a_short_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_nvml() -> None:
        raise OSError(
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
        )

    absent = "libcuda.so.1: cannot open shared object file: No such file or directory"
    monkeypatch.setattr(driver.nvml, "Library", no_nvml)
    monkeypatch.setattr(driver, "_ask_cuda", lambda: ([], absent))
    with pytest.raises(driver.DriverError) as error:
        driver.gpus()
    assert str(error.value) == "neither [libnvidia-ml.so.1] nor [libcuda.so.1] is installed"
    broken = absent.replace("libcuda.so.1", "libother.so")
    monkeypatch.setattr(driver, "_ask_cuda", lambda: ([], broken))
    with pytest.raises(driver.DriverError, match=r"libnvidia-ml.*; libother\.so: cannot"):
        driver.gpus()


def test_an_old_driver_is_named(tmp_path: Path) -> None:
    server = native_dir() / "pyft-server"
    if not server.is_file():
        pytest.skip("[build]: pyft-server is missing")
    text = "int cuDriverGetVersion(int *version) { *version = 12040; return 0; }"
    _, said = ends(tmp_path, "libcuda.so.1", text, [str(server)], PYFT_BACKEND_LIBRARY="cuda")
    assert said == (
        "pyft-server: device [-1], client [0]: the driver is for CUDA [12.4], "
        "and PyTorch's libraries are of CUDA [13]: install driver 580 or newer"
    )
