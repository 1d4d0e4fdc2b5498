"""`make bench-recovery`: how long a fault keeps a job from its next step, and what a restart costs.

A tiny GPT is trained on four ranks while their servers are killed one after the other, each in the
middle of a step; the losses must equal those of a run without faults. Beside it a restart, as
`pyft lab` measures it: on as many ranks one is killed, and a launcher without PyTorch starts all
anew from a blocking checkpoint of the step before. And agents are killed. BENCH_FAULTS (20), BENCH_RESTARTS (3) and BENCH_RANKS (4) change how much is done.
Ends with 1 when a target is missed, unless the figure says that it is missed on purpose.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, exit_code, print_table
from result_file import write
from training import BIN, train

from pyft.agent.job import job_folder
from pyft.recovery.report import PHASES
from pyft_lab.command.report import lost_of
from pyft_lab.matrix import runner
from pyft_lab.matrix.spec import Cell, Fault

FAULTS = int(os.environ.get("BENCH_FAULTS", "20"))
RESTARTS = int(os.environ.get("BENCH_RESTARTS", "3"))
RANKS = int(os.environ.get("BENCH_RANKS", "4"))
GAP = 3  # steps between two faults
FIRST = 3  # steps before the first one
HOLD = "import torch; x = torch.ones(9, device='cuda'); print(x.sum().item(), flush=True); input()"


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


def recoveries(ranks: int, faults: list[str], steps: int) -> list[dict]:
    """Train with the faults, compare with a run without, and return what each fault cost."""
    arguments = ("--steps", str(steps))
    plain = train("proxied", arguments, ranks=ranks, options=("--protect", "none"))
    run = train("proxied", arguments, ranks=ranks, options=("--protect", "snapshot", *faults))
    if run.exit_code or run.losses != plain.losses or run.parameters != plain.parameters:
        sys.exit(f"bench-recovery: the run with faults differs (exit code [{run.exit_code}])")
    if (recovered := run.report["recovery"]["recovered"]) != FAULTS:
        sys.exit(f"bench-recovery: [{recovered}] of [{FAULTS}] faults were recovered")
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
    """Return what the death of a rank costs with a checkpoint at each step: cells of `pyft lab`."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, RESTARTS + 1):
            fault = Fault(4, 1, "boundary", "rank-kill")
            cell = Cell("soft", "gpt", "blocking", RANKS, 8, 1, seed, (fault,))
            for result in runner.run(Path(folder), [cell.reference, cell], timeout_s=240):
                if not result.data["good"]:
                    what = f"[{result.cell.name}]: {result.data['status']}"
                    sys.exit(f"bench-recovery: a restart failed: {what}")
                found += lost_of(result)
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


def measure() -> list[Figure]:
    """Return all figures."""
    steps = FIRST + GAP * (FAULTS + 1)
    costs = recoveries(RANKS, injections(), steps)
    next_step = [cost["next_step_s"] for cost in costs]
    print(f"{FAULTS} faults on {RANKS} ranks, {steps} steps; losses and parameters are equal\n")
    figures = [Figure("fault to the next completed step", next_step, "s", at_most=1.0)]
    for phase in PHASES:
        ms = [cost["phases_ms"][phase] for cost in costs]
        limit = 20 if phase == "communicator" else None
        figures.append(Figure(f"of which {phase}", ms, "ms", 1, at_most=limit))
    # The phase ends when all is handed to the device, which then goes on: counted are the entries
    # repeated, and the whole way to the next step without what came before the replay.
    replayed = [rest_of_the_way(cost) / cost["step_s"] for cost in costs]
    figures.append(Figure("replay and rest of the step, in steps", replayed, at_most=1.5))
    half = len(next_step) // 2
    if half:
        growth = statistics.median(next_step[half:]) / statistics.median(next_step[:half])
        figures.append(Figure("second half of the faults / first half", [growth]))
    figures.append(Figure("an agent's death until the next works", agent_ms(), "ms", 1))
    # Where no restart came about there is no ratio, and so its target is missed.
    restart = restart_seconds()
    ratios = [statistics.median(restart) / statistics.median(next_step)] if restart else []
    if restart:
        figures.append(Figure("restart from a checkpoint to the next new step", restart, "s"))
    return [*figures, Figure("restart / recovery", ratios, digits=1, at_least=10)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    figures = measure()
    print_table(figures)
    if arguments.json:
        write(arguments.json, figures)
    return exit_code("bench-recovery", figures)


if __name__ == "__main__":
    sys.exit(main())
