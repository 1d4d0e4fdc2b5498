"""`make test-wheels`: other PyTorch wheels train on the soft GPU, without the proxy and with it.

Each version gets a virtual environment in build/wheels/<version> (5 to 7 GB, kept for the next
run unless --delete), trains examples/train_gpt.py there on the soft GPU and on the CPU, and has to
give the same losses within float tolerance. With the proxy it loses a GPU, and has to print what
it prints without, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILED = str(Path(__file__).with_name("compiled.py"))
VERSIONS = ["2.6.0", "2.8.0", "2.10.0", "2.14.1"]  # CUDA 12.4, 12.8, 12.8 with LZ4, 13
STEPS = 5
TOLERANCE = 1e-4
INSTALL_SECONDS, TRAIN_SECONDS = 1800, 600


class WheelError(Exception):
    """A wheel does not do what it has to."""


def libraries() -> Path:
    """Return the folder of libsoftgpu.so."""
    named = os.environ.get("SOFTGPU_LIBRARY")
    if named:
        return Path(named).resolve().parent
    from pyft._native import native_dir

    return native_dir()


def environment(version: str, folder: Path) -> Path:
    """Return the Python of an environment with that PyTorch; makes it if it is not there."""
    python = folder / version / "bin" / "python"
    done = folder / version / "installed"
    if done.exists():
        return python
    shutil.rmtree(folder / version, ignore_errors=True)
    make = [sys.executable, "-m", "venv", str(folder / version)]
    subprocess.run(make, check=True, timeout=INSTALL_SECONDS)
    install = [str(python), "-m", "pip", "install", "--quiet", f"torch=={version}", "numpy"]
    subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
    done.touch()
    return python


def run(command: list[str], extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a training to its end."""
    done = subprocess.run(
        command,
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        timeout=TRAIN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise WheelError(f"training ended with [{done.returncode}]:\n{done.stdout}{done.stderr}")
    return done


def training(python: Path, dtype: str) -> list[str]:
    """Return the command that trains a few steps."""
    program = str(ROOT / "examples" / "train_gpt.py")
    return [str(python), program, "--steps", str(STEPS), "--dtype", dtype]


def results(output: str) -> list[str]:
    """Return the lines that have to be equal, bit by bit."""
    found = re.findall(r"^step=\d+ loss=\S+$|^rank=0 params_sha256=\w+$", output, re.MULTILINE)
    if len(found) != STEPS + 1:
        raise WheelError(f"training has printed something else:\n{output}")
    return found


def losses_of(lines: list[str]) -> list[float]:
    """Return the losses of a training."""
    return [float(line.partition("loss=")[2]) for line in lines[:STEPS]]


def check_proxied(command: list[str], expected: list[str]) -> None:
    """Train with servers, and lose a GPU; raise WheelError unless the bits are those without."""
    pyft = [str(Path(sys.executable).with_name("pyft")), "run", "--gpus", "soft:1"]
    fault = ["--spares", "1", "--inject", "gpu-lost,rank=0,step=3"]
    done = run([*pyft, *fault, "--", *command], {})
    if results(done.stdout) != expected:
        raise WheelError(f"a recovery has other bits: {results(done.stdout)}, not {expected}")
    # A compiler's process may have work on that GPU too.
    if not re.search(r"^([1-9]\d*) of \1 recovered", done.stderr, re.MULTILINE):
        raise WheelError(f"no fault was repaired:\n{done.stderr}")


def check(version: str, folder: Path) -> None:
    """Train with one wheel in every type; raises WheelError."""
    python = environment(version, folder)
    native = libraries()
    preload = f"{native / 'libsoftgpu.so'}:{native / 'libsoftgpu_nvml.so'}"
    on_cpu = run(training(python, "fp32"), {"CUDA_VISIBLE_DEVICES": ""})
    expected = losses_of(results(on_cpu.stdout))
    for dtype in ("fp32", "fp16", "bf16"):
        lines = results(run(training(python, dtype), {"LD_PRELOAD": preload}).stdout)
        losses = losses_of(lines)
        if dtype == "fp32":
            check_proxied(training(python, dtype), lines)
        print(f"torch {version} {dtype}: {' '.join(f'{loss:.6f}' for loss in losses)}", flush=True)
        if losses[-1] >= losses[0]:
            raise WheelError("the loss does not fall")
        worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
        if dtype == "fp32" and worst > TOLERANCE:
            raise WheelError(f"the losses differ from the CPU's by [{worst:.2e}]: [{expected}]")
    compiled = [str(python), COMPILED]
    check_proxied(compiled, results(run(compiled, {"LD_PRELOAD": preload} | triton(folder)).stdout))
    print(f"torch {version}: two trainings lost a GPU, equal bits", flush=True)


def triton(folder: Path) -> dict[str, str]:
    """Return what lets Triton find a driver to link with, without pyft."""
    where = folder / "triton"
    where.mkdir(exist_ok=True)
    for name in ("libcuda.so", "libcuda.so.1"):
        (where / name).unlink(missing_ok=True)
        (where / name).symlink_to(libraries() / "libsoftgpu.so")
    return {"TRITON_LIBCUDA_PATH": str(where)}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--delete", action="store_true", help="delete the environments at the end")
    args = parser.parse_args()
    failed = []
    for version in args.versions:
        try:
            check(version, args.folder)
        except (WheelError, subprocess.SubprocessError) as error:
            print(f"torch {version}: {error}", file=sys.stderr)
            failed.append(version)
        if args.delete:
            shutil.rmtree(args.folder / version, ignore_errors=True)
    print(f"{len(args.versions) - len(failed)} of {len(args.versions)} wheels work")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
