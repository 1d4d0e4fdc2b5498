"""Faults repaired under running jobs: equal results, and the time of each phase.

An undisturbed job runs twice (A/A), and once more with a fault (A/B). Where the two undisturbed
ones differ by themselves, the other one is not judged by its results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from checklist import Check, FailError, SkipError
from jobs import results
from machine import Machine

COLD_S, WARM_S = 3.0, 1.5  # from fault to going on, GPT-2 on one GPU
GPT2 = ("--layers", "12", "--heads", "12", "--channels", "768", "--block", "256", "--batch", "8")
STEPS = 6
WARM_STEPS = 90  # seconds: a server stands by some time after the first one has begun to work
PHASES = ("detect", "fence", "wait", "spawn", "restore", "communicator", "replay", "join")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
# Not the host's name, which nothing may resolve.
LOCAL = ("--local-addr", "127.0.0.1")
Faults = list[dict[str, Any]]


def run_job(
    machine: Machine,
    program: list[str],
    ranks: int,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, Any]]:
    """Run a program through pyft; return its results and the report."""
    report = machine.report()
    command = machine.proxied(program, *options, "--report", str(report), devices=ranks)
    out = machine.run(command, environment)
    return results(out), json.loads(report.read_text())


def faults_of(report: dict[str, Any]) -> Faults:
    return report.get("recovery", {}).get("faults", [])


def training(machine: Machine, ranks: int, steps: int) -> list[str]:
    """Return the command of a training with deterministic algorithms."""
    model = GPT2 if machine.gpu and ranks == 1 else ()
    train = machine.python("several.py", "train_gpt.py", "--steps", str(steps), *model)
    if ranks == 1:
        return train
    return [sys.executable, *TORCHRUN, "--nproc-per-node", str(ranks), *LOCAL, *train[1:]]


def judged(wanted: list[str], again: list[str], got: list[str], text: str) -> str:
    """Return what A/A beside A/B says, or raise it."""
    if not wanted:
        raise FailError("the undisturbed job prints no results")
    if wanted != again:
        what = "equal" if got in (wanted, again) else "differs"
        raise SkipError(f"{text}; not judged: A/A differs, A/B {what}")
    if got != wanted:
        first = next((pair for pair in zip(wanted, got, strict=False) if pair[0] != pair[1]), None)
        shown = [f"undisturbed {first[0]}", f"repaired    {first[1]}"] if first else got
        raise FailError(f"{text}; A/A equal, A/B differs", shown)
    return f"{text}; A/A equal, A/B equal"


def recovered(faults: Faults, kinds: tuple[str, ...] = ("server-killed",)) -> dict[str, Any]:
    """Return the fault that was injected; all must be repaired, and be of these kinds."""
    outcomes = [f"{fault.get('fault')}: {fault.get('outcome')}" for fault in faults]
    injected = [fault for fault in faults if fault.get("fault") == "server-killed"]
    expected = all(fault.get("fault") in kinds for fault in faults)
    whole = all(fault.get("outcome") == "recovered" for fault in faults)
    if len(injected) != 1 or not expected or not whole:
        raise FailError(f"faults of the report: {outcomes}")
    return injected[0]


def phases(fault: dict[str, Any]) -> str:
    took = fault["phases_ms"]
    return ", ".join(f"{name} {took[name]:.0f}" for name in PHASES if name in took)


def repaired(
    machine: Machine, ranks: int, steps: int, *options: str
) -> tuple[dict[str, Any], list[list[str]]]:
    """Kill the last rank's server in the middle of a step; return the fault and all results."""
    program = training(machine, ranks, steps)
    wanted, _ = run_job(machine, program, ranks, "--protect", "none")
    inject = f"server-kill,rank={ranks - 1},step={steps * 2 // 3},call=40"
    got, report = run_job(machine, program, ranks, "--inject", inject, *options)
    fault = recovered(faults_of(report))
    again, _ = run_job(machine, program, ranks, "--protect", "none")
    return fault, [wanted, again, got]


def one_gpu(machine: Machine, name: str, steps: int, bound: float, *options: str) -> list[str]:
    fault, all_results = repaired(machine, 1, steps, *options)
    seconds = fault["ended"] - fault["noticed"]
    text = f"{name} {seconds * 1e3:.0f} ms: {phases(fault)}; {fault['verdict']}"
    text += f"; modules ready [{fault['ready_modules']}]" if fault["ready_modules"] else ""
    if machine.gpu and seconds > bound:
        raise FailError(f"{text}; the bound is {bound} s")
    return [judged(*all_results, text)]


def cold(machine: Machine) -> list[str]:
    return one_gpu(machine, "cold", STEPS, COLD_S, "--standby", "none")


def warm(machine: Machine) -> list[str]:
    """With a server that stands by on the same GPU."""
    return one_gpu(machine, "warm", WARM_STEPS, WARM_S, "--standby", "all")


def two_ranks(machine: Machine) -> list[str]:
    """Two ranks, on one GPU if it is real, by way of host memory."""
    fault, all_results = repaired(machine, 2, STEPS)
    megabytes = fault["peer_bytes"] / 1e6
    text = f"rank 1's server killed: {phases(fault)}; {fault['verdict']}"
    return [judged(*all_results, f"{text}; [{megabytes:.0f} MB] from the other's GPU")]


NEEDS = ("build",)
CHECKS = (
    Check("recovery-cold", 30, 80, cold, NEEDS),
    Check("recovery-warm", 40, 100, warm, NEEDS),
    Check("two-ranks", 30, 90, two_ranks, NEEDS),
)
