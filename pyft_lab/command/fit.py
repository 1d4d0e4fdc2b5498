"""`pyft lab fit`: constants of mechanisms from measured cells, and how well they predict others.

Seconds of soft GPUs are constants of this machine and of nothing else: `simulate` and `plan` refuse
them. What carries over are counts (steps done again) and ratios.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from rich.table import Table
from scipy import stats

from pyft_lab.api import DISK_LOST, OF_JOBS, STORAGE, Mechanism
from pyft_lab.command.report import Comparison, compare, lost_of
from pyft_lab.errors import LabError
from pyft_lab.matrix.runner import Result, load
from pyft_lab.mechanisms import find

WITHIN = 0.1  # of the measured value, or intervals that overlap
ENOUGH = 3  # runs on either side; intervals of less overlap with everything


@dataclass(frozen=True)
class Sample:
    """One fault: what it cost, and how many steps had to be done again."""

    mechanism: str
    kind: str
    run: str
    seed: int
    lost_s: float
    again: float  # as counted
    modelled: float  # the same by the model, which is asked of runs that are predicted
    step_s: float

    @property
    def recover_s(self) -> float:
        return self.lost_s - self.again * self.step_s


@dataclass(frozen=True)
class Span:
    """A mean and its interval of 95 %; of one value there is none."""

    mean: float
    low: float
    high: float
    count: int

    def overlaps(self, other: Span) -> bool:
        return self.low <= other.high and other.low <= self.high


def steps_again(result: Result, step: int, kind: str) -> float:
    """Return how many whole steps a mechanism does again, by its model.

    A checkpoint brings back the last multiple of the interval, a torn one the one before, and one
    that is gone nothing. One that cannot be written is told of an interval after the last whole one.
    pyft replays what was done of the step, and torchft does that one again: it is less than one.
    """
    mechanism = find(result.cell.mechanism)
    if not mechanism.relaunches or mechanism.one_by_one or kind == "slow-write":
        return 0.0
    interval = result.cell.interval
    if kind in STORAGE:
        return float(interval)
    if mechanism.name == "none" or is_all_gone(mechanism, kind):
        return float(step)
    in_memory = mechanism.places > 0  # whose files are none that could be torn
    return float(min(step % interval + (interval if kind == "torn" and not in_memory else 0), step))


def is_all_gone(mechanism: type[Mechanism], kind: str) -> bool:
    """Say whether a fault takes all that a mechanism has saved, so that it begins anew."""
    if mechanism.places:  # in memory of the launcher; peers have what one rank has lost
        return kind in OF_JOBS or (kind == "memory-lost" and mechanism.least_ranks == 1)
    return kind == DISK_LOST


def samples(results: Iterable[Result]) -> list[Sample]:
    """Return all faults of good runs."""
    found = []
    for result in results:
        cell = result.cell
        for fault in result.data["faults"] if lost_of(result) else []:
            if fault["lost_s"] is not None:
                modelled = steps_again(result, fault["step"], fault["kind"])
                costs = (fault["lost_s"], fault.get("again", modelled), modelled)
                name, step_s = cell.mechanism_name, result.data["step_s"]
                found.append(Sample(name, fault["kind"], cell.key, cell.seed, *costs, step_s))
    return found


def span(values: list[float]) -> Span:
    """Return the mean with the interval of Student's t."""
    mean = fmean(values)
    if len(values) < 2:
        return Span(mean, -math.inf, math.inf, len(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Span(mean, mean - half, mean + half, len(values))


def by_run(found: Iterable[Sample], value: str) -> Span:
    """Return the span of the means of runs: faults of one run are not independent."""
    runs: dict[str, list[float]] = defaultdict(list)
    for sample in found:
        runs[sample.run].append(getattr(sample, value))
    return span([fmean(values) for values in runs.values()])


def group(found: Iterable[Sample], *fields: str) -> dict[tuple[str, ...], list[Sample]]:
    groups: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
    for sample in found:
        groups[tuple(getattr(sample, field) for field in fields)].append(sample)
    return dict(sorted(groups.items()))


def constants(results: list[Result]) -> str:
    """Return constants as TOML: [value, low, high], each with where it comes from."""
    compared: dict[str, Comparison] = {one.mechanism: one for one in compare(results)}
    lines = ["# Constants of this machine; soft seconds are not those of real GPUs."]
    for (name,), found in group(samples(results), "mechanism").items():
        runs = len({sample.run for sample in found})
        where = f"{provenance(results)}: {len(found)} faults in {runs} runs"
        recover, again = by_run(found, "recover_s"), by_run(found, "again")
        lines += [f'\n["{name}"]', f"recover_s = {as_toml(recover)}"]
        lines += [f"replayed_steps = {as_toml(again)}"]
        if (pairs := compared[name].overhead) is not None:
            ratios = (pairs.ratio, pairs.low, pairs.high)
            lines += [f"step_ratio = {as_toml(Span(*ratios, pairs.pairs))}"]
        lines += [f'from = "{where}"']
    return "\n".join(lines) + "\n"


def provenance(results: list[Result]) -> str:
    return f"measured-{results[0].cell.substrate}"


def as_toml(value: Span) -> str:
    numbers = (value.mean, value.low, value.high)
    return "[" + ", ".join(f"{number:.4g}" for number in numbers) + "]"


@dataclass(frozen=True)
class Prediction:
    """What half of the seeds say that a fault costs, and what it cost in the others."""

    mechanism: str
    kind: str
    predicted: Span
    measured: Span

    @property
    def holds(self) -> bool:
        near = abs(self.predicted.mean - self.measured.mean) <= WITHIN * self.measured.mean
        return near or self.predicted.overlaps(self.measured)


def predict(found: list[Sample]) -> list[Prediction]:
    """Fit on every other seed, predict the rest: recovery as fitted, steps again by the model.

    Left out is what has too few runs to say anything.
    """
    seeds = sorted({sample.seed for sample in found})
    fitted = set(seeds[::2])
    predictions = []
    for (name, kind), group_of in group(found, "mechanism", "kind").items():
        one = [s for s in group_of if s.seed in fitted]
        other = [s for s in group_of if s.seed not in fitted]
        if one and other:
            recover = by_run(one, "recover_s")
            more = fmean([s.modelled * s.step_s for s in other])
            predicted = Span(
                recover.mean + more, recover.low + more, recover.high + more, recover.count
            )
            predictions.append(Prediction(name, kind, predicted, by_run(other, "lost_s")))
    return [p for p in predictions if min(p.predicted.count, p.measured.count) >= ENOUGH]


def orders(predictions: list[Prediction]) -> tuple[int, int]:
    """Return in how many pairs the order is right, of those whose measured intervals are apart."""
    right = total = 0
    for a, b in itertools.combinations(predictions, 2):
        if a.kind == b.kind and not a.measured.overlaps(b.measured):
            total += 1
            same = (a.predicted.mean < b.predicted.mean) == (a.measured.mean < b.measured.mean)
            right += same
    return right, total


HEADINGS = ("mechanism", "fault", "predicted s", "measured s", "holds")


def row_of(prediction: Prediction) -> tuple[str, ...]:
    """Return a prediction's cells of the table."""
    p = prediction
    spans = [f"{s.mean:.2f} ({s.low:.2f} to {s.high:.2f})" for s in (p.predicted, p.measured)]
    return (p.mechanism, p.kind, *spans, "yes" if p.holds else "no")


def table_of(predictions: list[Prediction]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading)
    for prediction in predictions:
        table.add_row(*row_of(prediction))
    return table


def in_words(predictions: list[Prediction]) -> str:
    """Return in how many the model holds, and how often the order of mechanisms is right."""
    right, total = orders(predictions)
    good = sum(p.holds for p in predictions)
    return f"{good} of {len(predictions)} hold; order right in {right} of {total} pairs"


def read(out: Path) -> list[Result]:
    """Return the results of a folder, which must be of one substrate."""
    results = load(out)
    substrates = {result.cell.substrate for result in results}
    if len(substrates) != 1:
        raise LabError(f"[{out}] has results of substrates {sorted(substrates)}: one is needed")
    return results
