"""`pyft lab plan`: the choice, what it costs, what it depends on, and what to set."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table

from pyft_lab.errors import SpecError
from pyft_lab.models import goodput
from pyft_lab.plan.search import AVAILABLE, Job, Outcome, search, sensitivity
from pyft_lab.sim import constants

TARGET = 0.97


def steps_between(job: Job, outcome: Outcome) -> int:
    """Return the steps between checkpoints on disk."""
    m = outcome.candidate.mechanism
    hours = m.disk_interval if m.copies else m.interval
    return max(1, round(hours * 3600 / job.step_s))


def settings(job: Job, outcome: Outcome) -> list[str]:
    """Return what to do so that the job is as planned."""
    steps, spares = steps_between(job, outcome), outcome.candidate.spares
    lines = [f"script: write a checkpoint to disk each {steps} steps"]
    if spares:
        lines.append(f"scheduler: keep {spares} spare nodes")
    if outcome.candidate.name not in AVAILABLE:
        lines.append(
            f"no options of pyft or torchrun give [{outcome.candidate.name}]: its row is what it "
            f"would cost; leave it out of --mechanisms for what there is today"
        )
    elif outcome.candidate.name == "pyft":
        words = ["pyft", "run", "--gpus", "auto", "--protect", "snapshot", "--standby", "spares"]
        lines.append(f"{shlex.join(words)} -- torchrun --max-restarts=1000 train.py")
        lines.append(
            "PYFT_CUT_EVERY=0 (the default): snapshots are as frequent as their cost allows"
        )
    else:
        lines.append("torchrun --max-restarts=1000 train.py")
    return lines


def table_of(job: Job, outcomes: list[Outcome]) -> Table:
    """Return a row per simulated candidate."""
    table = Table(box=None, pad_edge=False)
    for heading in (
        "mechanism", "disk each", "spares", "goodput", "+- 95 %", "useful of all",
        "lost GPU-h", "money", "P(memory not enough)",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "mechanism" else "right")
    for o in outcomes:
        steps = steps_between(job, o)
        table.add_row(
            o.candidate.name, f"{steps} steps", str(o.candidate.spares),
            f"{o.summary.goodput:.4f}", f"{o.summary.goodput_error:.4f}", f"{o.useful_share:.4f}",
            f"{o.lost_gpu_hours:,.0f}",
            f"{o.lost_gpu_hours * job.gpu_hour:,.0f}" if job.gpu_hour else "-",
            f"{o.p_lost:.2g}" if o.candidate.mechanism.copies else "-",
        )  # fmt: skip
    return table


def inverse(job: Job) -> str:
    """Return how quick recoveries in memory would have to be for a goodput."""
    budget_s = goodput.recover_for(TARGET, job.cluster.mtbf_h * 3600, job.step_s, 0.01)
    if budget_s <= 0:
        return f"{TARGET:.0%} is out of reach: half a step of each fault is more than is left"
    return f"{TARGET:.0%} takes recoveries in memory of {budget_s:.0f} s at most, at 1 % overhead"


def report(job: Job, rate_source: str) -> None:
    """Plan a job and print all of it."""
    outcomes = search(job)
    best, cluster = outcomes[0], job.cluster
    if best.p_lost > job.max_loss:
        raise SpecError(
            f"no candidate keeps the chance that memory is not enough below [{job.max_loss:g}]: "
            f"the best has [{best.p_lost:.2g}]"
        )
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    console.print(
        f"{cluster.gpus:,} GPUs, a fault each {cluster.mtbf_h * 60:.0f} min, {job.days:g} days, "
        f"step {job.step_s:g} s; {job.trials} runs each, over the same faults\n",
        markup=False,
    )
    console.print(table_of(job, outcomes))
    console.print(f"\nChoice: {constants.mechanisms()[best.candidate.name].title}. What to set:")
    for line in settings(job, best):
        console.print(f"  {line}", markup=False)
    console.print(f"\n{inverse(job)}")
    console.print("\nWhat its goodput depends on (low, high value of each input):")
    for name, low, high in sensitivity(job, best):
        console.print(f"  {name:20s} {low:.4f} .. {high:.4f}  ({100 * abs(high - low):.2f} points)")
    console.print("\nInputs:")
    console.print(f"  faults: {rate_source}", markup=False)
    console.print(
        "  assumed: shares of faults that take a node or a rack, repair times", markup=False
    )
    names = dict.fromkeys((best.candidate.name, "restart"))
    for name in names:
        for span, where in constants.mechanisms()[name].provenance.items():
            value, low, high = getattr(constants.mechanisms()[name], span)
            line = f"  {name}.{span} = {value:g} ({low:g} to {high:g}): {where}"
            console.print(line, markup=False)
