"""What the records of `data/anchors.toml` name: each takes a record's inputs, returns its value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyft_lab.anchors.record import Computed
from pyft_lab.models import rates, survival


def quotient(over: float, under: float) -> Computed:
    """Divide."""
    return Computed(over / under, [f"{over:g} / {under:g}"])


def total(parts: list[float]) -> Computed:
    """Add."""
    return Computed(sum(parts), [" + ".join(f"{p:g}" for p in parts)])


def productive_share(mtbf_min: float, stall_min: float) -> Computed:
    """Return 1 - stall / time between faults, in percent: each period of a fault has one stall."""
    value = 100 * (1 - stall_min / mtbf_min)
    return Computed(value, [f"1 - {stall_min:g} / {mtbf_min:g} min"])


def mean_replay_min(steps: float, step_s: float) -> Computed:
    """Return the time of half an interval."""
    return Computed(steps / 2 * step_s / 60, [f"{steps:g} / 2 steps x {step_s:g} s"])


def node_step_fault(step_s: float, mtbf_min: float, gpus: float, per_node: float) -> Computed:
    """Return the chance that a node fails in a step."""
    nodes = gpus / per_node
    value = step_s / (mtbf_min * 60) / nodes
    return Computed(value, [f"{step_s:g} s / {mtbf_min:g} min / {nodes:g} nodes"])


def deadpool_loss(shards: float, copies: float, per_step: float, steps: float) -> Computed:
    value = survival.loss_in_fixed_steps(int(shards), int(copies), per_step, steps)
    return Computed(value, [f"{shards:g} x {per_step:g}^{copies + 1:g} x {steps:g} steps"])


def deadpool_run(
    replayed: list[float], step_s: float, restart_s: float, swaps_s: list[float], as_factor: bool
) -> tuple[float, float, Computed]:
    """Return the cost of swaps and of restarts, and what the paper divides."""
    restarts = len(replayed) * restart_s + step_s * sum(replayed)
    swaps = sum(swaps_s)
    steps = [
        f"hot swaps: {' + '.join(f'{s:g}' for s in swaps_s)} = {swaps:.1f} s",
        f"restarts: {len(replayed)} x {restart_s:g} s + ({' + '.join(f'{r:g}' for r in replayed)})"
        f" steps x {step_s:g} s = {restarts:.1f} s",
        f"swaps / restarts = {100 * swaps / restarts:.2f} %, restarts / swaps = "
        f"{restarts / swaps:.1f} x",
    ]
    value = restarts / swaps if as_factor else 100 * swaps / restarts
    return swaps, restarts, Computed(value, steps)


def deadpool_swap_by_restart(
    replayed: list[float],
    step_s: float,
    restart_s: float,
    swaps_s: list[float],
    interval_steps: float,
    printed_percent: float,
    as_factor: bool,
) -> Computed:
    """Return what its real run costs, and what the printed share would have needed."""
    swaps, _, found = deadpool_run(replayed, step_s, restart_s, swaps_s, as_factor)
    needed = (swaps / (printed_percent / 100) - len(replayed) * restart_s) / step_s
    # Two faults that are uniform within the interval replay a sum below `needed` with this chance.
    chance = needed**2 / (2 * interval_steps**2)
    found.steps.append(
        f"{printed_percent:g} % needs {needed:.0f} replayed steps instead of {sum(replayed):.0f}: "
        f"two uniform faults have so few of {interval_steps:g} with a chance of {100 * chance:.2f} %"
    )
    return found


def faults_expected(
    faults: float, days: float, gpus: float, of_days: float, of_gpus: float
) -> Computed:
    """Return the faults of a job at the rate per GPU of another."""
    value = faults / (days * gpus) * of_days * of_gpus
    return Computed(
        value,
        [f"{faults:g} / ({days:g} d x {gpus:g} GPUs) x {of_days:g} d x {of_gpus:g} GPUs",
         f"two or more have a chance of {100 * rates.at_least_two(value):.1f} %"],
    )  # fmt: skip


def reft_interval(
    nodes: float, group: float, hardware: float, software: float, shape: float, threshold: float
) -> Computed:
    value = survival.age_at(
        lambda age: survival.reft_survival(age, int(nodes), int(group), hardware, software, shape),
        threshold,
    )
    return Computed(value, [f"P_re(t) = {threshold:g}; rate of snapshot processes {software:g}"])


def checkpoint_interval(
    nodes: float, hardware: float, software: float, shape: float, threshold: float
) -> Computed:
    value = survival.age_at(
        lambda age: survival.checkpoint_survival(age, int(nodes), hardware, software, shape),
        threshold,
    )
    return Computed(value, [f"P_ck(t) = {threshold:g}"])


def mtbf_of_rate(gpus: float, per_1000_node_days: float) -> Computed:
    value = rates.mtbf_h(gpus, per_1000_node_days)
    return Computed(value, [f"24 h / ({per_1000_node_days:g} / 1000 x {gpus:g} / 8 nodes)"])


def lost_gpu_hours(share: float, gpus: float, days: float) -> Computed:
    return Computed(share * gpus * days * 24, [f"{share:g} x {gpus:g} GPUs x {days:g} d x 24 h"])


def mean_of_relative(of: list[float], to: list[float]) -> Computed:
    """Return the mean over pairs of of / to - 1, in percent."""
    value = float(np.mean(np.array(of) / np.array(to) - 1) * 100)
    return Computed(value, [f"mean of {len(of)} ratios"])


def relative_of_means(of: list[float], to: list[float]) -> Computed:
    """Return mean(of) / mean(to) - 1, in percent."""
    return Computed(float((np.mean(of) / np.mean(to) - 1) * 100), ["ratio of two means"])


def mean_difference(of: list[float], to: list[float]) -> Computed:
    return Computed(float(np.mean(np.array(of) - np.array(to))), [f"mean of {len(of)} differences"])


FORMULAS: dict[str, Callable[..., Computed]] = {
    function.__name__: function
    for function in (
        quotient, total, productive_share, mean_replay_min, node_step_fault,
        deadpool_loss, deadpool_swap_by_restart, faults_expected, reft_interval,
        checkpoint_interval, mtbf_of_rate, lost_gpu_hours, mean_of_relative, relative_of_means,
        mean_difference,
    )
}  # fmt: skip
