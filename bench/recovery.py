"""`make bench-recovery`: how long a fault keeps a job from its next step, and what a restart costs.

A tiny GPT is trained on four ranks while their servers are killed one after the other, each in the
middle of a step; the losses must equal those of a run without faults. Beside it the same training
under plain torchrun, which after each fault restarts all processes from a checkpoint of the step
before. And agents of a job are killed. BENCH_FAULTS (20), BENCH_RESTARTS (3) and BENCH_RANKS (4) change how much is done.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from training import BIN, spread, train

from pyft.agent import job_folder

FAULTS = int(os.environ.get("BENCH_FAULTS", "20"))
RESTARTS = int(os.environ.get("BENCH_RESTARTS", "3"))
RANKS = int(os.environ.get("BENCH_RANKS", "4"))
GAP = 3  # steps between two faults
FIRST = 3  # steps before the first one
PHASES = ("detect", "fence", "spawn", "restore", "communicator", "replay", "join")
HOLD = "import torch; x = torch.ones(9, device='cuda'); print(x.sum().item(), flush=True); input()"
RESTART_SCRIPT = str(Path(__file__).with_name("restart_gpt.py"))


def injections() -> list[str]:
    """Kill the servers of all ranks in turn; a new server counts its steps from its own start."""
    faults = []
    for number in range(FAULTS):
        rank, turn = number % RANKS, number // RANKS
        step = FIRST + rank * GAP if turn == 0 else RANKS * GAP
        faults += ["--inject", f"server-kill,rank={rank},step={step},call=60,server={turn + 1}"]
    return faults


def offset() -> float:
    """Return what has to be added to the clock of the step times to get that of the report."""
    return time.time() - time.perf_counter()


def print_row(what: str, value: str, target: str, met: bool | None) -> None:
    """Print one line of the table."""
    said = "" if met is None else "yes" if met else "NO"
    print(f"{what:<44} {value:>34}  {target:<18} {said}", flush=True)


def recoveries(ranks: int, faults: list[str], steps: int) -> list[dict]:
    """Train with the faults, compare with a run without, and return what each fault cost."""
    arguments = ("--steps", str(steps))
    plain = train("proxied", arguments, ranks=ranks, options=("--protect", "none"))
    run = train("proxied", arguments, ranks=ranks, options=("--protect", "capture", *faults))
    if run.exit_code or run.losses != plain.losses or run.parameters != plain.parameters:
        sys.exit(f"bench-recovery: the run with faults differs (exit code [{run.exit_code}])")
    step_s = statistics.median(plain.step_seconds())
    times = [t + offset() for t in run.times]
    costs = []
    for fault in run.report["recovery"]["faults"]:
        began = run.report["started"] + fault["began"]
        ended = run.report["started"] + fault["ended"]
        after = next((t for t in times if t >= ended), None)
        if after is not None:
            costs.append({**fault, "next_step_s": after - began, "step_s": step_s})
    return costs


def rest_of_the_way(cost: dict) -> float:
    """Return the seconds from the beginning of the replay to the end of the next step."""
    before = sum(cost["phases_ms"][p] for p in PHASES if p not in ("replay", "join"))
    return cost["next_step_s"] - before / 1e3


def restart_seconds() -> list[float]:
    """Return the seconds from the death of a worker to the next completed step, under torchrun."""
    found = []
    # Or restarted ranks find the unique id of the run before: PyTorch's issue 135712.
    env = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    for _ in range(RESTARTS):
        with tempfile.TemporaryDirectory() as folder:
            line = [str(BIN / "pyft"), "run", "--gpus", f"soft:{RANKS}", "--protect", "none", "--"]
            line += [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(RANKS)]
            line += ["--max-restarts", "1", RESTART_SCRIPT, "--folder", folder, "--die-at", "4"]
            done = subprocess.run(line, capture_output=True, text=True, env=env)
        if done.returncode:  # the restart has failed as well: it is said, and not counted
            print(f"bench-recovery: a restarted job ended with [{done.returncode}]")
            continue
        stamps = dict(row.split("=", 1) for row in done.stdout.split() if "=" in row)
        found.append(float(stamps["after"]) - float(stamps["died"]))
    return found


def agent_ms() -> list[float]:
    """Return the milliseconds from the death of an agent until the next one has taken over."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        line = [str(BIN / "pyft"), "run", "--gpus", "soft:1", "--log-dir", folder, "--"]
        line += [str(BIN / "python"), "-c", HOLD]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        job = subprocess.Popen(line, text=True, **pipes)
        assert job.stdout is not None
        job.stdout.readline()
        for _ in range(FAULTS):
            agent = job_folder.read_meta(Path(folder))["agent_pid"]
            began = time.perf_counter()
            os.kill(agent, signal.SIGKILL)
            while job_folder.read_meta(Path(folder))["agent_pid"] == agent and job.poll() is None:
                time.sleep(0.0005)
            found.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.1)
        job.communicate("end\n", timeout=60)
    if job.returncode:
        sys.exit(f"bench-recovery: the job whose agents died ended with [{job.returncode}]")
    return found


def main() -> int:
    """Print the table."""
    steps = FIRST + GAP * (FAULTS + 1)
    costs = recoveries(RANKS, injections(), steps)
    next_step = [cost["next_step_s"] for cost in costs]
    print(f"{FAULTS} faults on {RANKS} ranks, {steps} steps; losses and parameters are equal\n")
    print_row("", "median (range)", "target", None)
    median = statistics.median(next_step)
    print_row("fault to next step, s", spread(next_step, digits=2), "<= 1.0", median <= 1.0)
    for phase in PHASES:
        ms = [cost["phases_ms"][phase] for cost in costs]
        limit = phase == "communicator"
        met = statistics.median(ms) <= 20 if limit else None
        print_row(f"  {phase}, ms", spread(ms), "<= 20" if limit else "", met)
    # The phase ends when all is handed to the device, which then goes on: counted are the entries
    # repeated, and the whole way to the next step without what came before the replay.
    replayed = [rest_of_the_way(cost) / cost["step_s"] for cost in costs]
    met = statistics.median(replayed) <= 1.5
    print_row("replay and rest of the step, steps", spread(replayed, digits=2), "<= 1.5", met)
    half = len(next_step) // 2
    growth = statistics.median(next_step[half:]) / statistics.median(next_step[:half])
    print_row("second half of the faults / first half", f"{growth:.2f}", "no growth", None)
    print_row("an agent's death until the next works, ms", spread(agent_ms()), "", None)
    restart = restart_seconds()
    if restart:
        ratio = statistics.median(restart) / median
        print_row("torchrun restart to next step, s", spread(restart, digits=2), "", None)
        print_row("restart / recovery", f"{ratio:.1f}", ">= 10", ratio >= 10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
