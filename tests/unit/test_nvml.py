"""What pyft asks of NVML, by NVIDIA's binding, of a library that stands for the driver's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Two GPUs: the first one works and has Xid 94 to tell; the second is lost and wants a reset.
LIBRARY = """
#include <string.h>
typedef struct { void *device; unsigned long long type, data; unsigned gpu, compute; } Event;
typedef struct {
  unsigned field, scope; long long timestamp, latency; int type, code; unsigned value, padding;
} Field;
static char gpus[2];
static int asked;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = gpus + i; return 0; }
int nvmlDeviceGetUUID(char *h, char *text, unsigned n) {
  strcpy(text, h == gpus ? "GPU-a" : "GPU-b");
  return 0;
}
int nvmlDeviceGetMemoryInfo(char *h, void *memory) { return h == gpus ? 0 : 15; }
int nvmlDeviceGetFieldValues(char *h, int count, Field *values) {
  values->code = values->field == 230 ? 0 : 2;
  values->value = h == gpus ? ACTION : 1;
  return 0;
}
int nvmlEventSetCreate(void **set) { *set = &asked; return 0; }
int nvmlDeviceRegisterEvents(char *h, unsigned long long kinds, void *set) {
  return kinds == 8 && set == &asked ? 0 : 2;
}
int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
  if (asked++) return 10;  /* timeout */
  *event = (Event){gpus, 8, 94, 0, 0};
  return 0;
}
"""

PROGRAM = """
from pyft._native import nvml
library = nvml.Library()
print(library.gpus)
print(library.recovery_action("GPU-a"), "|", library.recovery_action("GPU-b"))
library.touch("GPU-a")
try:
    library.touch("GPU-b")
except nvml.NvmlError as error:
    print(error, "|", error.name)
print(library.next_xid())
library.watch("GPU-a")
print(library.next_xid(), library.next_xid())
"""


def run(folder: Path, source: str, program: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("[compiler]: no C compiler")
    (folder / "nvml.c").write_text(source)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "nvml.c"], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("action", "words"),
    [(0, "none"), (3, "drain p2p"), (4, "drain and reset"), (99, "action 99")],
)
def test_what_a_gpu_answers(tmp_path: Path, action: int, words: str) -> None:
    done = run(tmp_path, LIBRARY.replace("ACTION", str(action)), PROGRAM)
    assert done.stdout.splitlines() == [
        "['GPU-a', 'GPU-b']",
        f"{words} | gpu reset",
        "[nvmlDeviceGetMemoryInfo] fails with code [15], GPU_IS_LOST | GPU_IS_LOST",
        "None",
        "('GPU-a', 94) None",
    ], done.stderr


def test_a_driver_that_does_not_work_is_an_error_with_its_name(tmp_path: Path) -> None:
    source = "int nvmlInitWithFlags(unsigned flags) { return 9; }"
    done = run(tmp_path, source, "from pyft._native import nvml; nvml.Library()")
    last = done.stderr.strip().rpartition("\n")[2]
    assert last.endswith("[nvmlInit] fails with code [9], DRIVER_NOT_LOADED")


def test_a_function_that_the_driver_lacks_is_an_error(tmp_path: Path) -> None:
    source = "int nvmlInitWithFlags(unsigned flags) { return 0; }"
    done = run(tmp_path, source, "from pyft._native import nvml; nvml.Library()")
    assert "FUNCTION_NOT_FOUND" in done.stderr
