"""The machine that is checked: its GPU or the software in its place, and how programs run on it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import hung
from checklist import FailError, SkipError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
MARGIN_S = 2.0  # for what a check does after its last program
KILL_S = 10.0  # a driver may hold a process for seconds, or for ever
ASK_S = 60.0  # a driver that is in no use first starts the GPU
ASK = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    if code := getattr(driver, name)(*arguments):
        raise SystemExit(f"[{name}] fails with [{code}]")
name, major, minor = ctypes.create_string_buffer(99), ctypes.c_int(), ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGetName", name, 99, 0)
call("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
call("cuDeviceGetAttribute", ctypes.byref(minor), 76, 0)
print(name.value.decode(), f"sm_{major.value}{minor.value}", sep="\\n")
"""
# Of what a program that failed has said: it may not be possible to run it again.
ERROR_LINES, LAST_LINES, SHOWN_CHARACTERS = 8, 12, 300
KERNEL_LOG_BYTES = 64 << 10


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
    architecture: str = ""  # of a real GPU, as sm_90
    deadline: float = 0.0  # of the present check
    builder: subprocess.Popen[str] | None = None  # compiles pyft beside the first checks
    check: str = ""  # its name
    runs: int = 0  # programs that it has run
    undisturbed: list[str] = field(default_factory=list)  # results of two ranks with NCCL

    @classmethod
    def find(cls, soft: bool, folder: Path, wheels: Path | None) -> Machine:
        """Look for a GPU."""
        name, architecture, problem = ("", "", "") if soft else _ask_driver()
        why = "asked for by --soft" if soft else f"no GPU was found ({problem})"
        made = cls(bool(name), why, folder, wheels, name or f"soft GPU, {platform.machine()}")
        made.architecture = architecture
        if not made.gpu:
            made.environment.pop("CUDA_VISIBLE_DEVICES", None)  # it is about real ones
        made.environment.setdefault("OMP_NUM_THREADS", "1")
        return made

    # ---- what is kept ---------------------------------------------------------------------------

    @property
    def kept(self) -> Path:
        """Return the folder with a folder for each check."""
        return self.folder / "kept"

    @property
    def evidence(self) -> Path:
        """Return the folder of the present check, whose files --artifacts keeps."""
        path = self.kept / (self.check or "none")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def begin(self, check: str) -> None:
        """Let programs leave their traces and logs in the folder of this check."""
        self.check, self.runs = check, 0
        self.environment["XDG_STATE_HOME"] = str(self.evidence / "state")
        self.environment["CUDA_LOG_FILE"] = str(self.evidence / "cuda.log")

    def report(self, name: str = "report") -> Path:
        """Return a new file for a report of pyft."""
        return self.evidence / f"{name}-{self.runs + 1:03d}.json"

    def keep_output(self, command: Sequence[str], code: int | None, output: str) -> None:
        self.runs += 1
        file = self.evidence / f"{self.runs:03d}-{Path(command[0]).name}.txt"
        file.write_text(f"{shlex.join(command)}\nexit code {code}\n\n{output}")

    def keep_kernel_log(self) -> None:
        """Keep what the kernel said last: the driver reports its errors there."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(["dmesg"], capture_output=True, timeout=3)
            (self.evidence / "dmesg.txt").write_bytes(done.stdout[-KERNEL_LOG_BYTES:] + done.stderr)

    # ---- what it is -----------------------------------------------------------------------------

    def sentence(self) -> str:
        if self.gpu:
            return f"check.sh: [{self.name}], {self.versions()}"
        return f"check.sh: {self.why_soft}: soft GPUs in its place ({self.versions()})"

    def versions(self) -> str:
        """Return what figures depend on."""
        driver = _driver_version() if self.gpu else "none"
        return f"driver {driver}, torch {_torch_version()}, Python {platform.python_version()}"

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    def gpus(self, count: int = 1) -> str:
        """Return the value of --gpus for so many devices; they share a real GPU."""
        return ",".join(["0"] * count) if self.gpu else f"soft:{count}"

    def need_gpu(self, why: str) -> None:
        if not self.gpu:
            raise SkipError(f"needs a GPU: {why}")

    def need_device(self) -> None:
        """Fail where there is nothing to run on: a GPU may have been hidden, or its driver broken."""
        if not self.gpu and self.native and not (self.native / "libsoftgpu.so").exists():
            raise FailError(
                f"nothing to run on: {self.why_soft}, and pyft was built without the soft GPU, "
                "because scipy-openblas32 is missing"
            )

    # ---- programs -----------------------------------------------------------------------------

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> str:
        """Run a program to its end within the check's time; return what it prints."""
        process, allowed = self.start(command, environment), self.left()
        try:
            out, err = process.communicate(timeout=allowed)
            self.keep_output(command, process.returncode, out + err)
        except subprocess.TimeoutExpired:
            hung.record(process.pid, self.evidence / f"hung-{process.pid}")
            out, err = end(process)
            self.keep_output(command, None, out + err)
            raise FailError(
                f"[{_short(command)}] does not end within [{allowed:.0f} s]", last_lines(out + err)
            ) from None
        finally:
            if process.poll() is None:
                end(process)
        if process.returncode not in accept:
            last = (err.strip().splitlines() or ["no message"])[-1]
            sentence = f"[{_short(command)}] ends with [{process.returncode}]: {last[:200]}"
            raise FailError(sentence, last_lines(out + err))
        return out

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        output: TextIO | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program in a process group of its own."""
        return subprocess.Popen(
            list(command),
            env=self.environment | dict(environment or {}),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT if output else subprocess.PIPE,
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

    def command(self, name: str) -> list[str]:
        """Return pyft's sub-command."""
        if not self.pyft:
            raise FailError("pyft is not built: see the check named build")
        return [*self.pyft, name]

    def _command(self) -> list[str]:
        self.need_device()
        return self.command("run")

    def python(self, script: str | Path, *arguments: str) -> list[str]:
        """Return the command of a script of ours."""
        return [sys.executable, str(PROGRAMS / script), *arguments]


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a program and what it has started; return what it has printed, if not into a file."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=5)
        return out or "", err or ""
    except (subprocess.TimeoutExpired, ProcessLookupError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        out, err = process.communicate(timeout=KILL_S)
        return out or "", err or ""
    except subprocess.TimeoutExpired:
        return "", f"[{process.pid}] or a child of it does not die of SIGKILL"


def last_lines(output: str) -> list[str]:
    """Return what a program said before it failed: its errors, and its last lines."""
    lines = [line[:SHOWN_CHARACTERS] for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("frame #")]  # of PyTorch's backtraces
    before = [line for line in lines[:-LAST_LINES] if re.search(r"\berror\b|Error:|FAILED", line)]
    return [*list(dict.fromkeys(before))[:ERROR_LINES], *lines[-LAST_LINES:]]


def nvcc() -> str | None:
    """Return the compiler of kernels, if there is one."""
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(found).exists():
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True)
    return found if version.returncode == 0 else None


def _short(command: Sequence[str]) -> str:
    return " ".join(Path(word).name if "/" in word else word for word in command)[-120:]


def _ask_driver() -> tuple[str, str, str]:
    """Return a GPU's name and architecture, or why there is none.

    The driver is asked in a process that ends: a context would take memory.
    """
    command = [sys.executable, "-c", ASK]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        return "", "", f"the driver does not answer within [{ASK_S:.0f} s]"
    if asked.returncode == 0:
        name, architecture = asked.stdout.splitlines()
        return name, architecture, ""
    lines = asked.stderr.strip().splitlines() or [f"the driver ends with [{asked.returncode}]"]
    return "", "", lines[-1]


def _torch_version() -> str:
    """Return the version with its build, without an import, which can take a minute."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin if spec and spec.origin else "nothing").with_name("version.py")
    return runpy.run_path(str(file))["__version__"] if file.exists() else "none"


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
