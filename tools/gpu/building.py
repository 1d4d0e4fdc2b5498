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

from checklist import Check, FailError
from machine import ROOT, Machine, nvcc

MEASURE = Path(__file__).resolve().parent / "measure"
RUN_TIME_NEEDS = ("typer",)  # beside PyTorch's own dependencies


def build(machine: Machine) -> list[str]:
    """Install pyft: with make where there is its environment, else into a folder of its own."""
    end_future()
    if (ROOT / ".venv").exists() and str(sys.executable).startswith(str(ROOT / ".venv")):
        machine.run(["make", "-C", str(ROOT), "--no-print-directory", "build"])
        find_installed(machine)
        return ["make build"]
    site = ROOT / "build" / "gpu-site"
    old = os.environ.get("PYTHONPATH")
    machine.environment["PYTHONPATH"] = f"{site}:{old}" if old else str(site)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(site)]
    if machine.wheels:
        wheels = sorted(str(wheel) for wheel in machine.wheels.resolve().glob("*.whl"))
        machine.run([*pip, "--no-index", "--no-deps", *wheels])
    check_needs(machine, site)
    soft = importlib.util.find_spec("scipy_openblas32") is not None
    parts = "softgpu,flexccl,proxy,shim" if soft else "flexccl,proxy,shim"
    options = f"-Dparts={parts} -Dtests=false"
    machine.run(
        [*pip, "--no-index", "--no-build-isolation", "--no-deps", str(ROOT)],
        {"PYFT_MESON_OPTIONS": options},
    )
    if why := find_installed(machine):
        raise FailError(f"pyft is installed in [{site}] and cannot be imported: {why}")
    machine.run(machine.command("version"))  # typer needs packages that differ by its version
    return [f"pip install --no-build-isolation --no-deps, parts [{parts}]"]


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


def check_needs(machine: Machine, site: Path) -> None:
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


CHECKS = (
    Check("build", 240, build),
    Check("doctor", 90, doctor, ("build",)),
    Check("build-measurements", 90, build_measurements, ("build",)),
)
