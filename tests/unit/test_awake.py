"""A clock that stands still while its process does."""

from __future__ import annotations

import pytest

from pyft.agent.process import awake
from pyft.agent.process.awake import AwakeClock


def test_a_pause_does_not_count_and_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    time = [100.0]
    monkeypatch.setattr(awake.time, "monotonic", lambda: time[0])
    clock = AwakeClock()
    begin = clock.now()
    for _ in range(20):
        time[0] += 0.05
        clock.now()
    assert clock.now() - begin == pytest.approx(1.0)
    time[0] += 600.0
    assert clock.now() - begin == pytest.approx(1.0 + awake.MOST_S)
    time[0] += 0.05
    assert clock.now() - begin == pytest.approx(1.05 + awake.MOST_S)
