"""NVML in the program: on real GPUs the driver answers, and a job's GPUs are numbered from 0."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft._native import native_dir

# A driver's NVML for four GPUs. Its handles are its own, and it calls its functions by their names.
DRIVER = r"""
#include <cstdio>
#include <cstring>
#define NVML extern "C" __attribute__((visibility("default"))) int
struct Gpu { unsigned number; const char *uuid, *bus; };
static Gpu gpus[] = {{0, "GPU-aa", "00000000:01:00.0"}, {1, "GPU-bb", "00000000:02:00.0"},
                     {2, "GPU-cc", "00000000:03:00.0"}, {3, "GPU-dd", "00000000:04:00.0"}};
static bool started = false;
static int put(char* out, unsigned bytes, const char* text) {
  if (strlen(text) >= bytes) return 7;
  strcpy(out, text);
  return 0;
}
NVML nvmlInit_v2() { started = true; return 0; }
NVML nvmlInit() { return nvmlInit_v2(); }
NVML nvmlShutdown() { started = false; return 0; }
NVML nvmlDeviceGetCount_v2(unsigned* count) { *count = 4; return started ? 0 : 1; }
NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu** gpu) {
  if (index >= 4) return 2;
  *gpu = &gpus[index];
  return 0;
}
NVML nvmlDeviceGetIndex(Gpu* gpu, unsigned* index) { *index = gpu->number; return 0; }
NVML nvmlDeviceGetUUID(Gpu* gpu, char* out, unsigned bytes) { return put(out, bytes, gpu->uuid); }
NVML nvmlDeviceGetName(Gpu* gpu, char* out, unsigned bytes) {
  char name[64];
  snprintf(name, sizeof name, "a real GPU, number %u", gpu->number);
  return put(out, bytes, name);
}
NVML nvmlDeviceGetCudaComputeCapability(Gpu* gpu, int* major, int* minor) {
  *major = 90 + gpu->number;
  *minor = gpu->number;
  return 0;
}
NVML nvmlDeviceGetHandleByUUID(const char* uuid, Gpu** gpu) {
  for (Gpu& one : gpus) if (!strcmp(one.uuid, uuid)) { *gpu = &one; return 0; }
  return 6;
}
NVML nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Gpu** gpu) {
  for (Gpu& one : gpus) if (!strcmp(one.bus, bus)) { *gpu = &one; return 0; }
  return 6;
}
NVML nvmlDeviceGetUtilizationRates(Gpu* gpu, unsigned* rates) {
  rates[0] = 90 + gpu->number;
  rates[1] = 10 + gpu->number;
  return 0;
}
NVML nvmlDeviceGetMemoryInfo(Gpu* gpu, unsigned long long* total_free_used) {
  for (int i = 0; i < 3; ++i) total_free_used[i] = 1000ull * gpu->number + i;
  return 0;
}
NVML nvmlDeviceGetComputeRunningProcesses_v3(Gpu* gpu, unsigned* count, unsigned* infos) {
  *count = 1;
  infos[0] = 4000 + gpu->number;
  return 0;
}
// Six arguments, and by way of another function of this library's.
NVML nvmlDeviceGetSamples(Gpu* gpu, int, unsigned long long, int*, unsigned* count, void*) {
  Gpu* same = nullptr;
  if (nvmlDeviceGetHandleByIndex_v2(gpu->number, &same) || same != gpu) return 999;
  *count = 100 + gpu->number;
  return 0;
}
NVML nvmlDeviceGetHandleByUUIDV(const char* uuid, Gpu** gpu) {  // behind a version and a kind
  return nvmlDeviceGetHandleByUUID(uuid + 8, gpu);
}
NVML nvmlDeviceGetTopologyNearestGpus(Gpu* gpu, int, unsigned* count, Gpu** out) {
  unsigned found = 0;
  for (Gpu& one : gpus)
    if (&one != gpu && found++ < *count && out) out[found - 1] = &one;
  *count = 3;
  return 0;
}
NVML nvmlSystemGetTopologyGpuSet(unsigned, unsigned* count, Gpu** out) {
  for (unsigned i = 0; i < 4 && i < *count && out; ++i) out[i] = &gpus[i];
  *count = 4;
  return 0;
}
NVML nvmlDeviceGetGpuFabricInfo(Gpu*, void*) { return 0; }
NVML nvmlDeviceGetGpuFabricInfoV(Gpu*, void*) { return 0; }
NVML nvmlDeviceGetGpuFabricInfo_v4(Gpu*, void*) { return 0; }
NVML nvmlDeviceGetNvLinkRemotePciInfo(Gpu*, unsigned, void*) { return 0; }
NVML nvmlDeviceGetNvLinkState(Gpu*, unsigned, int*) { return 0; }
NVML nvmlDeviceGetNvLinkCapability(Gpu*, unsigned, int, unsigned*) { return 0; }
NVML nvmlDeviceGetNvLinkInfo(Gpu*, void*) { return 0; }
NVML nvmlDeviceGetNvLinkVersion(Gpu*, unsigned, unsigned*) { return 0; }
NVML nvmlSystemGetDriverVersion(char* out, unsigned bytes) { return put(out, bytes, "599.99"); }
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  return code == 6 ? "the driver's words" : "other words";
}
"""

PROGRAM = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
count, device, text = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
out = lambda value: ctypes.byref(value)
print("init", nvml.nvmlInit_v2(), nvml.nvmlInit())
print("count", nvml.nvmlDeviceGetCount_v2(out(count)), count.value)
nvml.nvmlSystemGetDriverVersion(text, 96)
print("driver", text.value.decode())
for number in range(3):
    print("handle", number, code := nvml.nvmlDeviceGetHandleByIndex_v2(number, out(device)))
    if code:
        continue
    nvml.nvmlDeviceGetIndex(device, out(count))
    nvml.nvmlDeviceGetUUID(device, text, 96)
    print("  is", count.value, text.value.decode())
    nvml.nvmlDeviceGetName(device, text, 96)
    rates, infos = (ctypes.c_uint * 2)(), (ctypes.c_uint * 8)()
    memory, samples = (ctypes.c_ulonglong * 3)(), ctypes.c_uint()
    code = nvml.nvmlDeviceGetUtilizationRates(device, rates)
    print("  has", text.value.decode(), code, list(rates))
    parts = (ctypes.c_int(), ctypes.c_int())
    code = nvml.nvmlDeviceGetCudaComputeCapability(device, *map(out, parts))
    print("  capability", code, *(part.value for part in parts))
    print("  memory", nvml.nvmlDeviceGetMemoryInfo(device, memory), list(memory))
    code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, out(count), infos)
    print("  runs", code, count.value, infos[0])
    print("  samples", nvml.nvmlDeviceGetSamples(device, 0, 0, None, out(samples), None), samples.value)
for uuid in (b"GPU-dd", b"GPU-aa", b"GPU-zz"):
    print("uuid", nvml.nvmlDeviceGetHandleByUUID(uuid, out(device)))
for bus in (b"00000000:04:00.0", b"00000000:01:00.0"):
    print("bus", nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, out(device)))
nvml.nvmlErrorString.restype = ctypes.c_char_p
print("words", nvml.nvmlErrorString(6).decode())
print("power", nvml.nvmlDeviceGetPowerUsage(device, out(count)))
"""

LINKS = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
count, device, space = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
index = ctypes.c_uint()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
for name in ("aa", "cc"):
    print(nvml.nvmlDeviceGetHandleByUUIDV(bytes(8) + f"GPU-{name}".encode(), space))
for ask in (nvml.nvmlDeviceGetTopologyNearestGpus, nvml.nvmlSystemGetTopologyGpuSet):
    whose = (device, 1) if "Nearest" in ask.__name__ else (0,)
    found = (ctypes.c_void_p * 4)()
    count.value = 0
    print(ask(*whose, ctypes.byref(count), None), count.value, end=" ")
    count.value = 4
    print(ask(*whose, ctypes.byref(count), found), count.value, end=" ")
    for one in found[: count.value]:
        nvml.nvmlDeviceGetIndex(ctypes.c_void_p(one), ctypes.byref(index))
        print(index.value, end=" ")
    print()
fabric = [f"GpuFabricInfo{kind}" for kind in ("", "V", "_v4")] + ["NvLinkInfo"]
print({getattr(nvml, f"nvmlDeviceGet{name}")(device, space) for name in fabric})
links = [f"NvLink{name}" for name in ("RemotePciInfo", "State", "Version")]
print({getattr(nvml, f"nvmlDeviceGet{name}")(device, 0, space) for name in links})
print(nvml.nvmlDeviceGetNvLinkCapability(device, 0, 0, space))
"""

# The job has GPUs 3 and 2, in this order.
ON_REAL_GPUS = """init 0 0
count 0 2
driver 599.99
handle 0 0
  is 0 GPU-dd
  has a real GPU, number 3 0 [93, 13]
  capability 0 93 3
  memory 0 [3000, 3001, 3002]
  runs 0 1 4003
  samples 0 103
handle 1 0
  is 1 GPU-cc
  has a real GPU, number 2 0 [92, 12]
  capability 0 92 2
  memory 0 [2000, 2001, 2002]
  runs 0 1 4002
  samples 0 102
handle 2 2
uuid 0
uuid 6
uuid 6
bus 0
bus 6
words the driver's words
power 13
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    assert compiler, "pyft itself was built with one"
    folder = tmp_path_factory.mktemp("driver")
    (folder / "nvml.cc").write_text(DRIVER)
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library)]
    subprocess.run([*command, str(folder / "nvml.cc")], check=True)
    return library


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as `pyft run` would, without an agent."""
    preload = ":".join(str(native_dir() / f"libpyft_{name}.so") for name in ("shim", "nvml"))
    job = {"LD_PRELOAD": preload, "PYFT_AGENT": "nobody", "PYFT_DEVICES": "2"}
    return subprocess.run(
        command,
        env=os.environ | job | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_folder(driver: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(driver.parent)}


@pytest.mark.parametrize("told", ["PYFT_NVML", "LD_LIBRARY_PATH"])
def test_on_real_gpus_the_driver_answers_about_those_of_the_job(driver: Path, told: str) -> None:
    where = {"PYFT_NVML": str(driver)} if told == "PYFT_NVML" else in_folder(driver)
    # NVML takes no notice of CUDA's variable, and a job's GPUs are numbered without it.
    gpus = {"PYFT_GPUS": "GPU-dd,GPU-cc", "CUDA_VISIBLE_DEVICES": "1"}
    done = run([sys.executable, "-c", PROGRAM], **gpus, **where)
    assert (done.stdout, done.stderr) == (ON_REAL_GPUS, "")


def test_gpus_of_other_jobs_and_links_are_not_found(driver: Path) -> None:
    done = run([sys.executable, "-c", LINKS], PYFT_GPUS="GPU-dd,GPU-cc", PYFT_NVML=str(driver))
    wanted = "6\n0\n0 1 0 1 1 \n0 2 0 2 1 0 \n{3}\n{3}\n3\n"
    assert (done.stdout, done.stderr) == (wanted, "")


def test_a_handle_that_is_none_has_no_name() -> None:
    program = (
        "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); text = bytes(96)\n"
        "for handle in (0, 3, 2**32 + 1):\n"
        "    device, count = ctypes.c_void_p(handle), ctypes.c_uint()\n"
        "    print(nvml.nvmlDeviceGetName(device, text, 96), end=' ')\n"
        "    print(nvml.nvmlDeviceGetUUID(device, text, 96), end=' ')\n"
        "    print(nvml.nvmlDeviceGetComputeRunningProcesses(device, ctypes.byref(count), None))\n"
    )
    done = run([sys.executable, "-c", program], PYFT_GPUS="soft:2")
    assert (done.stdout, done.stderr) == ("2 2 2\n" * 3, "")


def test_on_soft_gpus_the_driver_is_not_asked(driver: Path) -> None:
    soft = {"PYFT_GPUS": "soft:2", "SOFTGPU_MEMORY": "123456"}
    done = run([sys.executable, "-c", PROGRAM], **soft, **in_folder(driver))
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert lines[:3] == ["init 0 0", "count 0 2", "driver 580.00"]
    assert "  has GPU behind pyft 3 [0, 0]" in lines, "not supported"
    assert lines.count("  capability 0 7 5") == 2
    assert lines.count("  memory 0 [123456, 123456, 0]") == 2
    assert lines[-1] == "power 3"


def test_what_only_a_driver_knows_is_not_made_up(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-driver.so")
    done = run([sys.executable, "-c", PROGRAM], PYFT_GPUS="GPU-dd,GPU-cc", PYFT_NVML=missing)
    for line in ("  capability 3 0 0\n", "  memory 3 [0, 0, 0]\n"):
        assert done.stdout.count(line) == 2, done.stdout + done.stderr


NAMED = {
    "a job's real GPU": ({"PYFT_GPUS": "GPU-dd"}, True, "0 2 599.99"),
    "soft GPUs beside a driver": ({"PYFT_GPUS": "soft:2"}, True, "0 4 599.99"),
    "soft GPUs alone": ({"PYFT_GPUS": "soft:2"}, False, "9 0 none"),
}


@pytest.mark.parametrize("case", NAMED)
def test_the_vendors_tool_hears_what_its_driver_says(
    driver: Path, tmp_path: Path, case: str, need: Callable[[str, bool, str], None]
) -> None:
    """It refuses an NVML that is not of its own version; without a driver it says that."""
    variables, there, answer = NAMED[case]
    source = tmp_path / "tool.cc"
    source.write_text(
        "#include <dlfcn.h>\n#include <cstdio>\nint main() {\n"
        '  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW); unsigned count = 0;\n'
        '  char version[96] = "none";\n'
        '  const int code = ((int (*)())dlsym(nvml, "nvmlInit_v2"))();\n'
        '  if (!code) ((int (*)(unsigned*))dlsym(nvml, "nvmlDeviceGetCount_v2"))(&count);\n'
        '  if (!code) ((int (*)(char*, unsigned))dlsym(nvml, "nvmlSystemGetDriverVersion"))'
        "(version, 96);\n"
        '  printf("%d %u %s", code, count, version);\n}\n'
    )
    tool = tmp_path / "nvidia-smi"
    subprocess.run(["c++", "-o", str(tool), str(source), "-ldl"], check=True)
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    need("no driver", there or "libnvidia-ml" not in found, "this machine has one")
    done = run([str(tool)], **variables, **(in_folder(driver) if there else {}))
    assert (done.stdout, done.stderr) == (answer, "")


def test_the_program_is_told_where_the_drivers_library_lies(driver: Path) -> None:
    program = "from pyft._native import nvml; print(nvml.library_path())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | in_folder(driver),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{driver}\n", "")
