"""NVML tells lost devices and memory errors of the soft GPU in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_torch_direct import native_dir  # noqa: E402

PROGRAM = """
import ctypes, sys
gpu = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
nvml = ctypes.CDLL(sys.argv[2])
count, handle, errors = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_ulonglong()
assert nvml.nvmlInit_v2() == 0
handles = []
for i in range(3):
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == 0
    handles.append(ctypes.c_void_p(handle.value))
# Visible devices 0 and 1 are the installed devices 2 and 0.
assert gpu.softgpu_inject(b"lost device=0; ecc device=1", None, 0) == 0
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 3
codes = [nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) for i in range(3)]
assert codes == [0, 0, 15], codes
name = ctypes.create_string_buffer(64)
assert [nvml.nvmlDeviceGetName(h, name, 64) for h in handles] == [0, 0, 15]
found = []
for h in handles[:2]:
    assert nvml.nvmlDeviceGetTotalEccErrors(h, 1, 0, ctypes.byref(errors)) == 0
    found.append(errors.value)
assert found == [1, 0], found
nvml.nvmlErrorString.restype = ctypes.c_char_p
assert nvml.nvmlErrorString(15) == b"GPU is lost"
"""


def test_lost_devices_and_memory_errors() -> None:
    libraries = [str(native_dir() / name) for name in ("libsoftgpu.so", "libsoftgpu_nvml.so")]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *libraries],
        env={**os.environ, "SOFTGPU_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "2,0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
