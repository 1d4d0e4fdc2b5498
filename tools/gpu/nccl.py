"""Stock NCCL with two ranks on one GPU: undisturbed, then with a server killed.

NCCL refuses two ranks that have a GPU in common on one host. From 2.28 on it takes its name of the
host from NCCL_HOSTID, and connects the ranks by sockets.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from checklist import Check, FailError, SkipError
from machine import Machine
from recoveries import LOCAL, TORCHRUN, Faults, faults_of, judged, phases, recovered, run_job

STEPS = 6
LEAST = (2, 28)
# Of each rank, from there its server has it too.
SHELL = 'NCCL_HOSTID=r$RANK NCCL_SOCKET_IFNAME=lo exec "$0" "$@"'
KINDS = ("server-killed", "peer-failed")  # all ranks replay
ASK = """
import ctypes, sys
version = ctypes.c_int()
code = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version))
if code:
    sys.exit(f"[ncclGetVersion] fails with [{code}]")
print(version.value)
"""
ASK_S = 30.0


def library() -> str:
    """Return the NCCL that servers load."""
    folders = (
        [Path(os.environ["PYFT_CUDA_LIBRARIES"])] if "PYFT_CUDA_LIBRARIES" in os.environ else []
    )
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        folders += [path.parent for path in sorted(Path(root).glob("*/lib/libnccl.so.2"))]
    found = [folder / "libnccl.so.2" for folder in folders]
    return str(next((path for path in found if path.exists()), "libnccl.so.2"))


def version(path: str) -> tuple[int, int, int]:
    """Ask the library, in a process that ends."""
    command = [sys.executable, "-c", ASK, path]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        raise SkipError(f"[{path}] does not say its version within [{ASK_S:.0f} s]") from None
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise SkipError(f"there is no NCCL: {last}")
    number = int(asked.stdout)
    return number // 10000, number // 100 % 100, number % 100


def need_nccl(machine: Machine) -> str:
    """Return NCCL's version, or skip."""
    machine.need_gpu("NCCL does not run on soft GPUs")
    found = version(library())
    text = ".".join(map(str, found))
    if found < LEAST:
        raise SkipError(f"NCCL [{text}] takes no two ranks on one GPU: that needs [2.28]")
    return text


def training() -> list[str]:
    """Return the command of two ranks, each on a host of its own, as NCCL sees it."""
    several = str(Path(__file__).resolve().parent / "programs" / "several.py")
    train = [several, "train_gpt.py", "--steps", str(STEPS)]
    torchrun = [sys.executable, *TORCHRUN, "--nproc-per-node", "2", *LOCAL]
    return [*torchrun, "--no-python", "sh", "-c", SHELL, sys.executable, *train]


def environment(machine: Machine) -> dict[str, str]:
    """Return the variables of the job; NCCL writes a file for each process."""
    return {
        "PYFT_COLLECTIVES": "nccl",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(machine.evidence / "nccl.%h.%p.log"),
    }


def job(machine: Machine, *options: str) -> tuple[list[str], Faults]:
    out, report = run_job(machine, training(), 2, *options, environment=environment(machine))
    return out, faults_of(report)


def undisturbed(machine: Machine) -> list[str]:
    """Train without a fault; with the results a job with a killed server is compared later."""
    text = need_nccl(machine)
    wanted, faults = job(machine)
    if faults:
        raise FailError(f"nothing was to fail: {[fault['fault'] for fault in faults]}")
    if len(wanted) < STEPS + 2:
        raise FailError(f"[{len(wanted)}] lines of results instead of [{STEPS + 2}]", wanted)
    machine.undisturbed = wanted
    return [f"NCCL {text}, two ranks on one GPU: {STEPS} steps, {len(wanted)} lines of results"]


def killed(machine: Machine) -> list[str]:
    """Kill a server: both ranks replay, with communicators made anew."""
    need_nccl(machine)
    wanted = machine.undisturbed or job(machine)[0]
    inject = f"server-kill,rank=1,step={STEPS * 2 // 3},call=40"
    got, faults = job(machine, "--inject", inject)
    fault = recovered(faults, KINDS)
    again, _ = job(machine)
    text = (
        f"rank 1's server killed: {phases(fault)}; {fault['verdict']}; {len(faults)} ranks replay"
    )
    return [judged(wanted, again, got, text)]


NEEDS = ("build",)
CHECKS = (
    Check("nccl-two-ranks", 18, 70, undisturbed, NEEDS),
    Check("nccl-killed-server", 37, 100, killed, NEEDS),
)
