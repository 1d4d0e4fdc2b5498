"""Which GPUs the driver has. NVML says it; where a container lacks NVML, the driver itself does."""

from __future__ import annotations

import os
import subprocess
import sys

from pyft._native import nvml

_NVML, _CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
_ASK_S = 60.0  # a driver that is in no use first starts the GPU, which takes seconds
# In a process that ends: the driver leaves threads and reserved addresses behind. The numbers are
# to be those of nvidia-smi.
_PROGRAM = """
import ctypes, uuid
driver = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    if code := getattr(driver, name)(*arguments):
        raise SystemExit(f"[{name}] fails with code [{code}]")
count, device, text = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
for number in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), number)
    call("cuDeviceGetUuid_v2", text, device)
    print(f"GPU-{uuid.UUID(bytes=text.raw)}")
"""


class DriverError(Exception):
    """There is no driver, or it has no GPU; the sentence says what was tried."""


def gpus() -> list[str]:
    """Return the UUIDs of all GPUs, in the order of nvidia-smi, at least one."""
    try:
        if found := nvml.Library().gpus:
            return found
        why_nvml = "NVML knows of no GPU"
    except (OSError, nvml.NvmlError) as error:
        why_nvml = str(error)
    found, why_cuda = _ask_cuda()
    if not found:
        raise DriverError(_why(why_nvml, why_cuda))
    return found


def _why(nvml: str, cuda: str) -> str:
    """Return what the two say, shorter where neither is there."""
    absent = "{}: cannot open shared object file: No such file"
    if nvml.startswith(absent.format(_NVML)) and cuda.startswith(absent.format(_CUDA)):
        return f"neither [{_NVML}] nor [{_CUDA}] is installed"
    return f"{nvml}; {cuda}"


def _ask_cuda() -> tuple[list[str], str]:
    """Return what libcuda.so.1 says, or why it says nothing."""
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-I", "-c", _PROGRAM]
    try:
        asked = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_ASK_S
        )
    except subprocess.TimeoutExpired:
        return [], f"[libcuda.so.1] does not answer within [{_ASK_S:.0f} s]"
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        return [], last.removeprefix("OSError: ")
    return asked.stdout.split(), "[libcuda.so.1] knows of no GPU"
