"""Run an example in one of three ways and collect losses and step times."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from processor_time import used

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYFT = os.environ.get("BENCH_PYFT", str(BIN / "pyft"))
EXAMPLES = ROOT / "examples"
TRAIN = str(EXAMPLES / "train_gpt.py")
WARM_UP_STEPS = 2  # the first ones load kernels and choose algorithms
MODES = ("proxied", "direct", "cpu")

_STEP = re.compile(r"step=(\d+) loss=(\S+)")
_HASH = re.compile(r"rank=(\d+) params_sha256=(\S+)")


@dataclass
class Training:
    """What one run printed, when, and what pyft counted."""

    mode: str
    losses: list[str] = field(default_factory=list)  # as printed: repr of a float
    times: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)  # processor seconds so far, at each step
    parameters: dict[int, str] = field(default_factory=dict)  # rank -> hash
    report: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0

    def step_processor_seconds(self) -> float:
        """Return what a step after the warm-up takes of the processors, client and servers."""
        after = self.used[WARM_UP_STEPS - 1 :]
        return (after[-1] - after[0]) / (len(after) - 1)

    def step_seconds(self) -> list[float]:
        """Return the time of each step after the warm-up."""
        gaps = [b - a for a, b in zip(self.times, self.times[1:], strict=False)]
        return gaps[WARM_UP_STEPS - 1 :]


def command(
    mode: str,
    script: str,
    arguments: Sequence[str],
    report: str,
    ranks: int,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line of a run; `ranks` 0: without torchrun."""
    program = [sys.executable, script]
    if ranks:
        # Another job of this machine may have torchrun's usual port.
        launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]
        program = [*launcher, script]
    program += arguments
    if mode == "cpu":
        return program
    how = ["--direct"] if mode == "direct" else []
    gpus = f"soft:{max(ranks, 1)}"
    return [PYFT, "run", "--gpus", gpus, *how, *options, "--report", report, "--", *program]


def train(
    mode: str,
    arguments: Sequence[str] = (),
    ranks: int = 1,
    on_step: Callable[[int], None] = lambda step: None,
    script: str = "train_gpt.py",
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    processor_time: bool = False,
    errors: IO[str] | None = None,
) -> Training:
    """Run to the end; `on_step` is called as the steps are printed. `options`: of `pyft run`.

    `errors`: a file that gets the standard error output, instead of this process's own.
    """
    result = Training(mode)
    env = {**os.environ, **(environment or {})}
    env.setdefault("OMP_NUM_THREADS", "1")
    # CPU and soft GPU are compared with the same number of threads.
    env.setdefault("SOFTGPU_THREADS", env["OMP_NUM_THREADS"])
    if mode == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        process = subprocess.Popen(
            command(mode, str(EXAMPLES / script), arguments, str(report), ranks, options),
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if step := _STEP.match(line):
                result.losses.append(step.group(2))
                result.times.append(time.perf_counter())
                if processor_time:
                    result.used.append(used(process.pid, script))
                on_step(int(step.group(1)))
            elif parameters := _HASH.match(line):
                result.parameters[int(parameters.group(1))] = parameters.group(2)
        result.exit_code = process.wait()
        if report.exists():
            result.report = json.loads(report.read_text())
    return result


def largest_relative_difference(a: Training, b: Training, steps: int) -> float:
    """Compare the losses of the first steps."""
    pairs = list(zip(a.losses, b.losses, strict=False))[:steps]
    return max((abs(float(x) - float(y)) / abs(float(y)) for x, y in pairs), default=float("inf"))


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Return "median (min to max, n)"."""
    if not values:
        return "-"
    middle, low, high = (f(values) * scale for f in (statistics.median, min, max))
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}, n={len(values)})"
