"""Builds pyft and the programs of the measurements."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import hung
from checklist import Check, FailError
from machine import ROOT, Machine, end, last_lines, nvcc

MEASURE = Path(__file__).resolve().parent / "measure"
SITE = ROOT / "build" / "gpu-site"
LOG = "build.log"
ASK_MACHINE = [
    *("sh", "-c"),
    "nvidia-smi -q; ulimit -a; grep -i seccomp /proc/self/status; cat /proc/meminfo; lscpu; dmesg",
]
RUN_TIME_NEEDS = ("typer",)  # beside PyTorch's own dependencies


def start(machine: Machine) -> None:
    """Start to compile, beside what needs no pyft; two cores are left for that."""
    machine.begin("build")
    command = [sys.executable, str(Path(__file__).resolve()), str(machine.evidence)]
    command += [str(machine.wheels.resolve())] if machine.wheels else []
    jobs = str(max(1, machine.cores - 2))
    with (machine.evidence / LOG).open("w") as log:
        machine.builder = machine.start(command, {"PYFT_BUILD_JOBS": jobs}, output=log)


def build(machine: Machine) -> list[str]:
    """Wait until pyft is installed, and use it."""
    if machine.builder is None:
        start(machine)
    builder, log = machine.builder, machine.evidence / LOG
    machine.pyft, machine.native = [], None  # of an older one nothing is wanted
    began, allowed = time.monotonic(), machine.left()
    try:
        code = builder.wait(allowed)
    except subprocess.TimeoutExpired:
        hung.record(builder.pid, machine.evidence / "hung")
        end(builder)
        why = f"pyft is not built after [{allowed:.0f} s] of waiting"
        raise FailError(why, last_lines(log.read_text())) from None
    if code:
        lines = last_lines(log.read_text())
        raise FailError(f"pyft cannot be built: {lines[-1] if lines else code}", lines)
    if not own_environment():
        machine.environment["PYTHONPATH"] = python_path()
    if why := find_installed(machine):
        raise FailError(f"pyft is built and cannot be imported: {why}")
    machine.run(machine.command("version"))  # typer needs packages that differ by its version
    how = log.read_text().splitlines()[-1]
    return [how, f"waited for it {time.monotonic() - began:.0f} s"]


def own_environment() -> bool:
    """Say whether this Python is of .venv, which make fills."""
    return (ROOT / ".venv").exists() and str(sys.executable).startswith(str(ROOT / ".venv"))


def python_path() -> str:
    old = os.environ.get("PYTHONPATH")
    return f"{SITE}:{old}" if old else str(SITE)


def install(wheels: Path | None) -> str:
    """Install pyft: with make where there is its environment, else into a folder of its own."""
    end_future()
    if own_environment():
        call(["make", "-C", str(ROOT), "--no-print-directory", "build"])
        return "make build"
    os.environ["PYTHONPATH"] = python_path()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(SITE)]
    if wheels:
        call([*pip, "--no-index", "--no-deps", *sorted(map(str, wheels.glob("*.whl")))])
    check_needs(SITE)
    soft = importlib.util.find_spec("scipy_openblas32") is not None
    parts = "softgpu,flexccl,proxy,shim" if soft else "flexccl,proxy,shim"
    os.environ["PYFT_MESON_OPTIONS"] = f"-Dparts={parts} -Dtests=false"
    call([*pip, "--no-index", "--no-build-isolation", "--no-deps", str(ROOT)])
    return f"pip install --no-build-isolation --no-deps, parts [{parts}]"


def call(command: list[str]) -> None:
    """Run a program; what it prints goes where this program's output goes."""
    if code := subprocess.run(command, cwd="/").returncode:
        raise FailError(f"[{Path(command[0]).name}] ends with [{code}]")


def look_ahead(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Read PyTorch from the disk, and write down what this machine is, while others compile."""
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    commands = {"torch.txt": [sys.executable, "-c", "import torch"], "machine.txt": ASK_MACHINE}
    started = []
    for name, command in commands.items():
        with (folder / name).open("w") as file:
            started.append(subprocess.Popen(command, cwd=folder, stdout=file, **quiet))
    return started


def end_future() -> None:
    """Let nothing be changed later than now: the tree may come from a machine with another clock.

    meson refuses such files, and ninja would compile them each time.
    """
    now = time.time()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".git", ".venv")]
        for path in (os.path.join(folder, name) for name in files):
            with contextlib.suppress(OSError):  # a link to nothing, a file of someone else
                if os.stat(path).st_mtime > now:
                    os.utime(path, (now, now))


def find_installed(machine: Machine) -> str:
    """Use the pyft that this Python imports; return why there is none."""
    code = "from pyft._native import native_dir; print(native_dir())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=machine.environment,
        cwd=machine.folder,
        capture_output=True,
        text=True,
    )
    if found.returncode:
        return (found.stderr.strip().splitlines() or ["no message"])[-1]
    machine.pyft = [sys.executable, "-m", "pyft"]
    machine.native = Path(found.stdout.strip())
    return ""


def check_needs(site: Path) -> None:
    """Say which packages are missing, all at once."""
    missing = []
    for name in (*RUN_TIME_NEEDS, "setuptools", "mesonbuild"):
        if importlib.util.find_spec(name) is None and not list(site.glob(f"{name}*")):
            missing.append(name)
    if not shutil.which("ninja") and importlib.util.find_spec("ninja") is None:
        missing.append("ninja")
    if missing:
        raise FailError(f"packages {missing} are missing: give their wheels by --wheels DIR")


def build_measurements(machine: Machine) -> list[str]:
    """Compile the programs; the kernels only where there is nvcc."""
    find = str(ROOT / "tools" / "build" / "find_deps.py")
    include = machine.run([sys.executable, find, "cuda-include"]).strip()
    program = machine.folder / "measure"
    flags = [word for folder in include.split(":") for word in ("-isystem", folder)]
    sources = [*sorted(map(str, MEASURE.glob("*.cc"))), *digest_sources(machine, find)]
    flags += [word for folder in ("proxy", "proxy/include") for word in ("-I", str(ROOT / folder))]
    compiler = os.environ.get("CXX", "c++")
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
    machine.run(
        [compiler, "-std=c++20", "-O2", *warnings, *flags, *sources, "-o", str(program)]
        + ["-pthread", "-ldl"]
    )
    if not machine.gpu and machine.native and (machine.native / "libsoftgpu.so").exists():
        machine.environment["MEASURE_DRIVER"] = str(machine.native / "libsoftgpu.so")
    found = nvcc()
    if not found:
        return ["no nvcc: kernels are left out"]
    kernels = machine.folder / "kernels.cubin"
    architecture = machine.architecture or "sm_75"
    machine.run(
        [found, "-cubin", f"-arch={architecture}", "-O2", "-o", str(kernels)]
        + [str(MEASURE / "kernels.cu")]
    )
    machine.environment["MEASURE_KERNELS"] = str(kernels)
    return [f"with kernels for {architecture}"]


def digest_sources(machine: Machine, find: str) -> list[str]:
    """Return what the server's digests consist of, with their kernel compiled."""
    server, checkpoint = (ROOT / "proxy" / part / "digest" for part in ("server", "checkpoint"))
    images = machine.folder / "digest_images.cc"
    script = str(ROOT / "tools" / "build" / "compile_kernel.py")
    nvrtc = machine.run([sys.executable, find, "nvrtc-lib"]).strip()
    kernel = str(checkpoint / "kernel.cu")
    machine.run([sys.executable, script, kernel, str(ROOT / "proxy"), nvrtc, str(images)])
    sources = (server / "images.cc", checkpoint / "nh.cc", checkpoint / "nh_rows.cc")
    return [str(images), *map(str, sources)]


def doctor(machine: Machine) -> list[str]:
    """See whether this kernel and container have what pyft needs of them."""
    out = machine.run([*machine.command("doctor"), "--json"], accept=(0, 1))
    findings = json.loads(out)
    texts = {status: [] for status in ("ok", "warn", "fail")}
    for one in findings:
        texts[one["status"]].append(f"{one['need']}: {one['text']}")
    if texts["fail"]:
        raise FailError("; ".join(texts["fail"]), texts["warn"])
    kernel = next(text for text in texts["ok"] if text.startswith("platform"))
    return [kernel, f"{len(texts['ok'])} needs are met", *texts["warn"]]


def main() -> int:
    """Install pyft in a process of its own: building.py FOLDER [WHEELS]."""
    beside = look_ahead(Path(sys.argv[1]))
    try:
        how = install(Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    except FailError as error:
        print(error, flush=True)
        return 1
    for one in beside:  # a driver that hangs is no reason to wait
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(5)
        one.kill()
    print(how, flush=True)
    return 0


BUILD = Check("build", 60, 240, build)
DOCTOR = Check("doctor", 6, 60, doctor, ("build",))
PROGRAMS = Check("build-measurements", 12, 90, build_measurements)


if __name__ == "__main__":
    sys.exit(main())
