"""How long a step takes, as it is seen from outside."""

from __future__ import annotations

import pytest

from pyft.recovery.pace import Pace


@pytest.mark.parametrize(
    ("step_s", "look_s"), [(0.001, 0.25), (0.3, 0.25), (5.0, 0.25), (60.0, 1.0)]
)
def test_any_pace_is_found(step_s: float, look_s: float) -> None:
    pace, now = Pace(), 0.6 * step_s
    for _ in range(int(5 * step_s / look_s) + 20):
        pace.saw(now, int(now / step_s))
        now += look_s
    found = pace.step_s(now - look_s)
    assert step_s * 0.7 <= found <= step_s * 1.3 + look_s


def test_it_is_not_known_before_two_steps_have_ended() -> None:
    pace = Pace()
    for now, steps in ((0.0, 7), (4.0, 8), (5.0, 8)):
        pace.saw(now, steps)
        assert pace.step_s(now) == 0.0
    pace.saw(14.0, 9)
    assert pace.step_s(14.0) == 10.0


def test_a_long_step_counts_before_it_ends() -> None:
    pace = Pace()
    for now in range(5):
        pace.saw(float(now), now)
    assert pace.step_s(4.0) == 1.0
    assert pace.step_s(34.0) == 30.0


def test_who_goes_back_begins_again() -> None:
    pace = Pace()
    for now in range(5):
        pace.saw(float(now), 10 + now)
    pace.saw(100.0, 3)
    assert pace.step_s(100.0) == 0.0


def test_the_first_step_counts() -> None:
    pace = Pace()
    for now in range(3):
        pace.saw(3.0 * now, now)
    assert pace.step_s(6.0) == 3.0


def test_what_was_long_ago_does_not_count() -> None:
    pace = Pace()
    for steps, now in enumerate((0.0, 10.0, 20.0, 30.0, 31.0, 32.0, 33.0)):
        pace.saw(now, steps)
    assert pace.step_s(33.0) == 1.0
