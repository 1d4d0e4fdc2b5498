"""Ten thousand steps of an MLP: what grows in client, server, agent, supervisor and launcher."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from figures import Figure
from training import PYFT, ROOT

sys.path.insert(0, str(ROOT / "tests"))

from growth import lines, slope, watch  # noqa: E402 - what the test of growth uses as well


def leaks(steps: int) -> list[Figure]:
    """Run, print the slopes, and return those of memory and descriptors as figures."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(Path(__file__).with_name("mlp.py")), "--steps", str(steps)]
        growth = watch(PYFT, program, Path(folder) / "log")
    warm_up = steps // 3
    for line in lines(growth, warm_up):
        print(f"  {line}")
    found = []
    for who, samples in growth.after(warm_up).items():
        memory, descriptors = slope(samples, "kilobytes"), slope(samples, "descriptors")
        found += [
            Figure(f"{who}: memory per 1000 steps", [memory], "kB", 1, at_most=10),
            Figure(f"{who}: descriptors per 1000 steps", [descriptors], "", 2, at_most=0.1),
        ]
    files = growth.files[-1][1] - growth.files[0][1]
    return [*found, Figure("files of the job, growth", [files], digits=0, at_most=0)]


if __name__ == "__main__":
    for figure in leaks(10_000):
        print(figure.name, figure.text(), figure.target())
