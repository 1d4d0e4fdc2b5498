"""The models agree with each other, with quadrature by hand, and refuse where they do not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pyft_lab.errors import OutOfRangeError
from pyft_lab.models import goodput, interval, rates, spares, survival, swap

MINUTE = 1 / 60


@pytest.mark.parametrize(
    ("mtbf", "tau", "stall", "recover", "expected"),
    [  # simulated, 300 trials each, within their bands: hours
        (3.093, 0.5, 10 / 3600, 5 * MINUTE, 0.8915),
        (1.803, 1.0, 0.0, 5 * MINUTE, 0.714),
        (0.3, 2000 / 3600, 8.9 / 3600, 10 * MINUTE, 0.1962),
        (0.3, 5 * MINUTE, 8.9 / 3600, 3 * MINUTE, 0.7100),
    ],
)
def test_the_exact_formula_is_what_simulation_gives(
    mtbf: float, tau: float, stall: float, recover: float, expected: float
) -> None:
    assert goodput.exact(mtbf, tau, stall, recover) == pytest.approx(expected, abs=2e-3)


def test_first_order_is_within_a_point_up_to_its_limit_and_refused_beyond() -> None:
    for tau in np.linspace(0.01, 0.19, 19):
        for recover in (0.0, 0.002):
            if goodput.cost_per_fault(1.0, tau, 0.0, recover) <= goodput.FIRST_ORDER_LIMIT:
                exact = goodput.exact(1.0, tau, 0.0, recover)
                assert goodput.first_order(1.0, tau, 0.0, recover) == pytest.approx(exact, abs=0.01)
                assert goodput.expected_ettr(1.0, tau, 0.0, recover) == pytest.approx(
                    exact, abs=0.01
                )
    for formula in (goodput.first_order, goodput.expected_ettr):
        with pytest.raises(OutOfRangeError, match=r"here it is \[1\.4\d\]"):
            formula(0.3, 2000 / 3600, 8.9 / 3600, 10 * MINUTE)


def test_a_goodput_that_no_float_holds_is_none() -> None:
    assert goodput.exact(1e-6, 10.0, 0.0, 1.0) == 0.0


def test_expected_loss_is_near_half_an_interval_when_faults_are_rare() -> None:
    assert goodput.expected_loss(1e6, 10.0) == pytest.approx(5.0, rel=1e-4)
    assert goodput.expected_loss(1.0, 10.0) < 1.0


@pytest.mark.parametrize("stall", [1.0, 60.0, 600.0])
def test_the_exact_interval_is_the_best_and_daly_is_near_it(stall: float) -> None:
    mtbf = 18 * 60.0
    best = interval.exact(stall, mtbf)
    value = goodput.exact(mtbf, best, stall, 150)
    assert all(value >= goodput.exact(mtbf, best * by, stall, 150) for by in (0.95, 1.05))
    assert interval.daly(stall, mtbf) == pytest.approx(best, rel=7e-3)
    assert interval.young(stall, mtbf) > best


def test_a_budget_for_recovery_gives_the_goodput_that_was_asked_for() -> None:
    budget = goodput.recover_for(0.97, 1080, 20, 0.01)
    assert budget == pytest.approx(12.3, abs=0.1)
    assert 0.99 / (1 + (budget + 10) / 1080) == pytest.approx(0.97)


def test_losses_of_a_ring_are_those_of_counted_windows() -> None:
    """Sliding windows, in the smallest system that has them: three nodes, each a copy of the next."""
    nodes, rate, window, runs = 30, 0.01, 0.2, 400.0
    random = np.random.default_rng(1)
    lost = 0
    for _ in range(60):
        times = np.sort(random.uniform(0, runs, random.poisson(nodes * rate * runs)))
        where = random.integers(0, nodes, len(times))
        for first in range(len(times)):
            second = first + 1
            while second < len(times) and times[second] - times[first] < window:
                lost += int((where[second] - where[first]) % nodes in (1, nodes - 1))
                second += 1
    expected = survival.ring_rate(nodes, 1, rate, window) * runs * 60
    assert abs(lost - expected) < 3 * math.sqrt(expected)


def test_losses_of_groups() -> None:
    assert survival.parity_rate(600, 6, 1, 1e-4, 2.0) == pytest.approx(5 * 600 * 1e-8 * 2)
    assert survival.ring_rate(10, 2, 0.1, 0.5) == pytest.approx(3 * 10 * 1e-3 * 0.25)
    assert survival.probability(1e-12, 1.0) == pytest.approx(1e-12)
    with pytest.raises(OutOfRangeError):
        survival.ring_rate(10, 3, 0.1, 0.5)
    with pytest.raises(OutOfRangeError):
        survival.parity_rate(10, 4, 4, 0.1, 0.5)


def test_the_window_at_100k_gpus_is_not_the_published_one() -> None:
    """D is 128 there; all nodes, p, and a window of seconds make the loss 2,400 times as likely."""
    rate_h = 1 / 0.3 / 12500
    ours = survival.ring_rate(12500, 1, rate_h, 114 / 3600) * 90 * 24
    published = survival.loss_in_fixed_steps(128, 1, 1e-6, 90 * 86400 / 20)
    assert ours == pytest.approx(0.1216, rel=1e-3)
    assert ours / published == pytest.approx(2443, rel=1e-3)


def test_rates_from_counts() -> None:
    low, high = rates.mtbf_interval(419, 54 * 24)
    assert (low, high) == pytest.approx((2.81, 3.41), abs=0.01)
    assert rates.mtbf_interval(0, 10.0)[0] > 0
    assert rates.mtbf_interval(0, 10.0)[1] > 1e3
    assert rates.at_least_two(0.292187) == pytest.approx(0.0352, abs=1e-4)


def test_three_forms_of_a_swap_differ_far_away_and_meet_their_points() -> None:
    first, second = (32, 17.1), (512, 29.8)
    for form in swap.FORMS.values():
        assert form(first, second, 32) == pytest.approx(17.1)
        assert form(first, second, 512) == pytest.approx(29.8)
    far = [form(first, second, 100_000) for form in swap.FORMS.values()]
    assert far == pytest.approx([54, 2662, 86], abs=1)


def test_spares_for_single_nodes() -> None:
    mean = spares.mean_out(1 / 3.0, 0.35, 1.15, 36)
    assert mean == pytest.approx(4.83, abs=0.01)
    assert 7 < spares.for_single_nodes(mean, 0.01) < 14


def test_two_levels_fall_back_to_one() -> None:
    assert goodput.two_levels(1e12, 1.0, 10, 1, 0.1, 0.5) == pytest.approx(
        goodput.exact(10, 1, 0.1, 0.5)
    )
