"""A training of many steps takes no more memory, descriptors, processes and files than one of few."""

from __future__ import annotations

import sys
from pathlib import Path

from growth import Limits, leaks, lines, watch
from job import PYFT, ROOT

# At the warm-up ring and journal have been filled once.
STEPS, WARM_UP = 3000, 1950
# `own`: 100 bytes a step, less than any object that could be forgotten.
LIMITS = Limits(own=100, shared=250, objects=50)


def test_many_steps_take_no_more_memory(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "bench" / "mlp.py"), "--steps", str(STEPS)]
    growth = watch(PYFT, program, tmp_path / "log")
    measured = growth.after(WARM_UP)
    assert set(measured) == {"client", "server", "agent", "supervisor", "launcher"}
    assert all(len(samples) >= 20 for samples in measured.values())
    assert growth.objects[-1][1] > 10_000, "log and store have been seen"
    assert growth.processes[-1][1] >= len(measured)
    assert leaks(growth, WARM_UP, LIMITS) == [], lines(growth, WARM_UP)
