"""A training of many steps takes no more memory, descriptors and files than one of few."""

from __future__ import annotations

import sys
from pathlib import Path

from growth import Sample, lines, slope, watch
from job import PYFT, ROOT

STEPS, WARM_UP = 2500, 1000
KILOBYTES = 100  # per 1000 steps: 100 bytes a step, less than any object that could be forgotten


def test_many_steps_take_no_more_memory(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "bench" / "mlp.py"), "--steps", str(STEPS)]
    growth = watch(PYFT, program, tmp_path / "log")
    measured = growth.after(WARM_UP)
    assert set(measured) == {"client", "server", "agent", "supervisor", "launcher"}
    for who, samples in measured.items():
        assert len(samples) >= 20
        assert slope(samples, "kilobytes") < KILOBYTES, (who, lines(growth, WARM_UP))
        # One that is open for a moment is in a single sample, one that is forgotten in all later.
        half = len(samples) // 2
        first, last = (
            min(s.descriptors for s in part) for part in (samples[:half], samples[half:])
        )
        assert first == last, (who, lines(growth, WARM_UP))
    assert growth.files[0][1] == growth.files[-1][1]


def test_a_leak_has_a_slope() -> None:
    samples = [Sample(step, 5000 + step // 4, 0, 7) for step in range(0, 2000, 50)]
    assert 200 < slope(samples, "kilobytes") < 300
    assert slope(samples, "descriptors") == 0
