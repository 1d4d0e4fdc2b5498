"""The machine that is checked: its GPU or the software in its place, and how programs run on it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checklist import FailError, SkipError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
MARGIN_S = 2.0  # for what a check does after its last program


@dataclass
class Machine:
    """`gpu`: there is a real one and it is to be used."""

    gpu: bool
    why_soft: str
    folder: Path  # for files, gone afterwards
    wheels: Path | None
    name: str
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    pyft: list[str] = field(default_factory=list)  # command, known once it is built
    native: Path | None = None  # folder of pyft's native files
    deadline: float = 0.0  # of the present check

    @classmethod
    def find(cls, soft: bool, folder: Path, wheels: Path | None) -> Machine:
        """Look for a GPU."""
        name = "" if soft else _gpu_name()
        why = "asked for by --soft" if soft else "no GPU was found"
        made = cls(bool(name), why, folder, wheels, name or f"soft GPU, {platform.machine()}")
        made.environment["XDG_STATE_HOME"] = str(folder / "state")
        made.environment.setdefault("OMP_NUM_THREADS", "1")
        return made

    def sentence(self) -> str:
        if self.gpu:
            return f"check.sh: [{self.name}], {self.versions()}"
        return f"check.sh: {self.why_soft}: software GPUs in its place ({self.versions()})"

    def versions(self) -> str:
        """Return what figures depend on."""
        import torch

        driver = _driver_version() if self.gpu else "none"
        return f"driver {driver}, torch {torch.__version__}, Python {platform.python_version()}"

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    def gpus(self, count: int = 1) -> str:
        """Return the value of --gpus for so many devices; they share a real GPU."""
        return ",".join(["0"] * count) if self.gpu else f"soft:{count}"

    def need_gpu(self, why: str) -> None:
        if not self.gpu:
            raise SkipError(f"needs a GPU: {why}")

    # ---- programs -----------------------------------------------------------------------------

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> str:
        """Run a program to its end within the check's time; return what it prints."""
        process = self.start(command, environment)
        try:
            out, err = process.communicate(timeout=self.left())
        except subprocess.TimeoutExpired:
            end(process)
            raise FailError(
                f"[{_short(command)}] does not end within [{self.left():.0f} s]"
            ) from None
        if process.returncode not in accept:
            last = (err.strip().splitlines() or ["no message"])[-1]
            raise FailError(f"[{_short(command)}] ends with [{process.returncode}]: {last[:200]}")
        return out

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a program in a process group of its own."""
        return subprocess.Popen(
            list(command),
            env=self.environment | dict(environment or {}),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def left(self) -> float:
        """Return the seconds that the present check has."""
        return max(1.0, self.deadline - time.monotonic() - MARGIN_S)

    def proxied(self, program: Sequence[str], *options: str, devices: int = 1) -> list[str]:
        """Return the command that runs a program through pyft."""
        return [*self._command(), "--gpus", self.gpus(devices), *options, "--", *program]

    def native_run(self, program: Sequence[str], devices: int = 1) -> list[str]:
        """Return the command that runs it without servers: what proxied runs are compared with."""
        if self.gpu:
            return list(program)
        return [*self._command(), "--gpus", self.gpus(devices), "--direct", "--", *program]

    def _command(self) -> list[str]:
        if not self.pyft:
            raise FailError("pyft is not built: see the check named build")
        return [*self.pyft, "run"]

    def python(self, script: str | Path, *arguments: str) -> list[str]:
        """Return the command of a script of ours."""
        return [sys.executable, str(PROGRAMS / script), *arguments]


def end(process: subprocess.Popen[str]) -> None:
    """End a program and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=5)
    except (subprocess.TimeoutExpired, ProcessLookupError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def nvcc() -> str | None:
    """Return the compiler of kernels, if there is one."""
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(found).exists():
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True)
    return found if version.returncode == 0 else None


def _short(command: Sequence[str]) -> str:
    return " ".join(Path(word).name if "/" in word else word for word in command)[-120:]


def _gpu_name() -> str:
    """Ask the driver itself, in a process that ends: a context would take memory."""
    code = (
        "import ctypes as c; d = c.CDLL('libcuda.so.1'); n = c.create_string_buffer(99)\n"
        "assert d.cuInit(0) == 0 and d.cuDeviceGetName(n, 99, 0) == 0; print(n.value.decode())"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _driver_version() -> str:
    text = ctypes.create_string_buffer(96)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            return text.value.decode()
    except (OSError, AttributeError):
        pass
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"(\d+\.\d+(\.\d+)?)", path.read_text()) if path.exists() else None
    return found.group(1) if found else "unknown"
