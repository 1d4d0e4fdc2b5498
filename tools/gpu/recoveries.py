"""Faults repaired under running jobs: equal results, and the time of each phase."""

from __future__ import annotations

import json
import sys

from checklist import Check, FailError
from jobs import results
from machine import ROOT, Machine

COLD_S, WARM_S = 3.0, 1.5  # from fault to going on, GPT-2 on one GPU
GPT2 = ("--layers", "12", "--heads", "12", "--channels", "768", "--block", "256", "--batch", "8")
STEPS = 6
WARM_STEPS = 90  # seconds: a server stands by some time after the first one has begun to work
PHASES = ("detect", "fence", "spawn", "restore", "communicator", "replay", "join")


def job(machine: Machine, ranks: int, steps: int, *options: str) -> tuple[list[str], list[dict]]:
    """Train on so many ranks; return results and faults of the report."""
    model = GPT2 if machine.gpu and ranks == 1 else ()
    train = [str(ROOT / "examples" / "train_gpt.py"), "--steps", str(steps), *model]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    torchrun += ["--local-addr", "127.0.0.1"]  # not the host's name, which nothing may resolve
    program = [sys.executable, *(torchrun if ranks > 1 else []), *train]
    report = machine.folder / "report.json"
    report.unlink(missing_ok=True)
    out = machine.run(machine.proxied(program, *options, "--report", str(report), devices=ranks))
    return results(out), json.loads(report.read_text()).get("recovery", {}).get("faults", [])


def phases(faults: list[dict]) -> str:
    took = faults[0]["phases_ms"]
    return ", ".join(f"{name} {took[name]:.0f}" for name in PHASES if name in took)


def repaired(machine: Machine, ranks: int, steps: int, *options: str) -> list[dict]:
    """Kill the last rank's server in the middle of a step; compare with the undisturbed run."""
    wanted, _ = job(machine, ranks, steps, "--protect", "none")
    fault = f"server-kill,rank={ranks - 1},step={steps * 2 // 3},call=40"
    got, faults = job(machine, ranks, steps, "--inject", fault, *options)
    if len(faults) != 1 or faults[0]["outcome"] != "recovered":
        raise FailError(f"faults of the report: {[fault.get('outcome') for fault in faults]}")
    if got != wanted:
        raise FailError("losses or hashes differ from those of the undisturbed run")
    return faults


def one_gpu(machine: Machine, name: str, steps: int, bound: float, *options: str) -> list[str]:
    faults = repaired(machine, 1, steps, *options)
    seconds = faults[0]["ended"] - faults[0]["noticed"]
    ready = faults[0]["ready_modules"]
    text = f"{name} {seconds * 1e3:.0f} ms: {phases(faults)}; equal, {faults[0]['verdict']}"
    text += f"; modules ready [{ready}]" if ready else ""
    if machine.gpu and seconds > bound:
        raise FailError(f"{text}; the bound is {bound} s")
    return [text]


def cold(machine: Machine) -> list[str]:
    return one_gpu(machine, "cold", STEPS, COLD_S, "--standby", "none")


def warm(machine: Machine) -> list[str]:
    """With a server that stands by on the same GPU."""
    return one_gpu(machine, "warm", WARM_STEPS, WARM_S, "--standby", "all")


def two_ranks(machine: Machine) -> list[str]:
    """Two ranks, on one GPU if it is real."""
    faults = repaired(machine, 2, STEPS)
    megabytes = faults[0]["peer_bytes"] / 1e6
    text = f"rank 1's server killed: {phases(faults)}; equal, {faults[0]['verdict']}"
    return [f"{text}; [{megabytes:.0f} MB] from the other's GPU"]


NEEDS = ("build",)
CHECKS = (
    Check("recovery-cold", 80, cold, NEEDS),
    Check("recovery-warm", 100, warm, NEEDS),
    Check("two-ranks", 100, two_ranks, NEEDS),
)
