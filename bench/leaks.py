"""Ten thousand steps of an MLP: what grows in client, server, agent, supervisor and launcher."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from figures import Figure, exit_code, print_table
from training import PYFT, ROOT

sys.path.insert(0, str(ROOT / "tests"))

from growth import Growth, grown, lines, slope, slope_of, watch  # noqa: E402 - as the test of growth

PARTS = ("client", "server", "agent", "supervisor", "launcher")


def leaks(steps: int) -> list[Figure]:
    """Run, print the slopes, and return those of memory, descriptors and processes as figures."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(Path(__file__).with_name("mlp.py")), "--steps", str(steps)]
        growth = watch(PYFT, program, Path(folder) / "log")
    warm_up = steps // 3
    for line in lines(growth, warm_up):
        print(f"  {line}")
    return figures_of(growth, warm_up)


def figures_of(growth: Growth, warm_up: int) -> list[Figure]:
    """Return what grows behind the warm-up; a part that was never seen has no value."""
    measured, found = growth.after(warm_up), []
    for who in dict.fromkeys([*PARTS, *measured]):
        samples = measured.get(who, [])

        def per_1000(what: str, samples: list = samples) -> list[float]:
            return [slope(samples, what)] if len(samples) > 1 else []

        # Mapped: pages that are there already come one by one, so that less than a leak is seen.
        found += [
            Figure(f"{who}: memory per 1000 steps", per_1000("kilobytes"), "kB", 1, at_most=10),
            Figure(f"{who}: shared memory mapped", per_1000("shared"), "kB", 1, at_most=250),
            Figure(f"{who}: descriptors", per_1000("descriptors"), "", 2, at_most=0.1),
        ]
    objects = slope_of([count for count in growth.objects if count[0] > warm_up])
    return [
        *found,
        Figure("memory objects of the job per 1000 steps", [objects], "kB", 1, at_most=10),
        Figure("processes of the job, growth", [grown(growth.processes)], digits=0, at_most=0),
        Figure("files of the job, growth", [grown(growth.files)], digits=0, at_most=0),
    ]


def main() -> int:
    """Measure, and print the table: `leaks.py [STEPS]`."""
    figures = leaks(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
    print_table(figures)
    return exit_code("leaks", figures)


if __name__ == "__main__":
    sys.exit(main())
