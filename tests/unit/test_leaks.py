"""What the tests of growth take for a leak."""

from __future__ import annotations

from dataclasses import replace

import pytest
from growth import Growth, Limits, Sample, leaks, slope

LIMITS = Limits(own=100, shared=250, objects=50)
STEPS = range(0, 2000, 50)


def flat() -> Growth:
    """Return a job of which nothing grows."""
    growth = Growth({"server": [Sample(step, 5000, 900, 7) for step in STEPS]})
    growth.files, growth.processes, growth.objects = (
        [(step, count) for step in STEPS] for count in (4, 5, 25_000)
    )
    return growth


def leaking(what: str, every: int) -> Growth:
    """Return a job of which one number grows by one each so many steps."""
    growth = flat()
    if what in ("kilobytes", "shared", "descriptors"):
        server = growth.samples["server"]
        growth.samples["server"] = [
            replace(one, **{what: getattr(one, what) + one.step // every}) for one in server
        ]
    else:
        setattr(growth, what, [(step, n + step // every) for step, n in getattr(growth, what)])
    return growth


def test_nothing_grows() -> None:
    assert leaks(flat(), 500, LIMITS) == []


@pytest.mark.parametrize(
    ("what", "every", "words"),
    [
        ("kilobytes", 4, "server: [kilobytes] grows by 2"),
        ("shared", 2, "server: [shared] grows by 5"),
        ("descriptors", 900, "server: +"),
        ("objects", 4, "memory objects grow by 2"),
        ("processes", 900, "+1 processes"),
        ("files", 900, "+1 files"),
    ],
)
def test_each_kind_of_leak_is_found(what: str, every: int, words: str) -> None:
    (found,) = leaks(leaking(what, every), 500, LIMITS)
    assert found.startswith(words)


def test_what_is_there_for_a_moment_is_none() -> None:
    growth = flat()
    growth.processes[-3] = (growth.processes[-3][0], 9)
    assert leaks(growth, 500, LIMITS) == []


def test_a_slope_is_per_thousand_steps() -> None:
    samples = leaking("kilobytes", 4).samples["server"]
    assert 200 < slope(samples, "kilobytes") < 300
    assert slope(samples, "descriptors") == 0
