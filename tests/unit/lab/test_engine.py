"""The engine agrees with SimPy on the same draws, with the exact formulas, and sums to its time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from reference_simpy import Job, Simulation

from pyft_lab.models import goodput, survival
from pyft_lab.sim import engine
from pyft_lab.sim.cluster import NODE, Cluster, Mechanism
from pyft_lab.sim.traces import Traces, draw

PLAIN = Mechanism(0.5, 10 / 3600, 0.0, 5 / 60, 0.0, 0, 1, 0.0, 1.0, 0.0, 1.0)
CALM = Cluster(16384, 3.79, node_share=0.0, rack_share=0.0)
EXACT = 1e-12


def simulate(traces: Traces, mechanism: Mechanism, cluster: Cluster, hours: float) -> np.ndarray:
    trials = len(traces.times)
    out = np.zeros((trials, len(engine.COLUMNS)))
    engine.many(
        traces.times, traces.nodes, traces.kinds, traces.repairs,
        np.tile(np.array(mechanism.numbers()), (trials, 1)),
        cluster.nodes, cluster.nodes_per_rack, cluster.spares, hours, out,
    )  # fmt: skip
    return out


def reference(traces: Traces, trial: int, m: Mechanism, cluster: Cluster, hours: float) -> Job:
    rows = zip(
        traces.times[trial].tolist(), traces.nodes[trial].tolist(),
        traces.kinds[trial].tolist(), traces.repairs[trial].tolist(), strict=True,
    )  # fmt: skip
    return Simulation(cluster, m, [row for row in rows if row[0] < hours], hours).run()


def any_cluster(random: np.random.Generator) -> tuple[Cluster, Mechanism]:
    """Return what is likely to have racks, too few spares, lost states and failing recoveries."""
    cluster = Cluster(
        gpus=int(random.integers(4, 60)) * 8,
        per_1000_node_days=float(random.uniform(5, 100)),
        nodes_per_rack=int(random.choice([2, 4])),
        node_share=float(random.uniform(0, 0.6)),
        rack_share=float(random.uniform(0, 0.2)),
        job_share=float(random.uniform(0, 0.1)),
        repair_median_h=float(random.uniform(1, 40)),
        spares=int(random.integers(0, 8)),
        weibull=float(random.choice([0.7, 1.0])),
    )
    interval, stall = float(random.uniform(0.1, 8)), float(random.uniform(0, 0.5))
    mechanism = Mechanism(
        interval=interval,
        stall=stall,
        lag=float(random.uniform(0, interval)),
        recover=float(random.uniform(0.01, 10)),
        overhead=float(random.uniform(0, 0.1)),
        copies=int(random.integers(0, 3)),
        distance=int(random.integers(0, 3)),
        protect=float(random.uniform(0, 10)),
        disk_interval=float(random.uniform(1, 20)),
        disk_stall=float(random.uniform(0, 0.2)),
        disk_recover=float(random.uniform(0.1, 5)),
        soft_hurts=bool(random.integers(0, 2)),
    )
    return cluster, mechanism


@pytest.mark.parametrize("seed", range(50))
def test_the_engine_is_what_simpy_says(seed: int) -> None:
    cluster, mechanism = any_cluster(np.random.default_rng(seed))
    hours = 2000.0
    traces = draw(cluster, hours, 0, 2, seed)
    found = simulate(traces, mechanism, cluster, hours)
    for trial in range(2):
        job = reference(traces, trial, mechanism, cluster, hours)
        row = found[trial]
        assert row[engine.STATE_LOSSES] == job.losses
        for column, value in (
            (engine.USEFUL, job.useful),
            (engine.LOST, job.lost),
            (engine.WAITING, job.waiting),
            (engine.RECOVERING, job.recovering),
        ):
            assert row[column] / hours == pytest.approx(value / hours, abs=EXACT, rel=0)
        assert row[:6].sum() == pytest.approx(hours, rel=1e-10)
        assert (row[:7] > -1e-9).all()


def test_random_clusters_have_what_they_are_for() -> None:
    found = []
    for seed in range(50):
        cluster, mechanism = any_cluster(np.random.default_rng(seed))
        found.append(simulate(draw(cluster, 2000.0, 0, 1, seed), mechanism, cluster, 2000.0)[0])
    rows = np.array(found)
    assert (rows[:, engine.STATE_LOSSES] > 0).sum() > 10
    assert (rows[:, engine.WAITING] > 0).sum() > 10
    assert (rows[:, engine.FAULTS] > 100).sum() > 5


def test_python_and_compiled_code_agree() -> None:
    cluster, mechanism = any_cluster(np.random.default_rng(7))
    traces = draw(cluster, 500.0, 0, 1, 7)
    compiled = simulate(traces, mechanism, cluster, 500.0)[0]
    plain = np.zeros(len(engine.COLUMNS))
    engine.one.py_func(
        traces.times[0], traces.nodes[0], traces.kinds[0], traces.repairs[0],
        np.array(mechanism.numbers()), cluster.nodes, cluster.nodes_per_rack, cluster.spares,
        500.0, plain,
    )  # fmt: skip
    assert plain == pytest.approx(compiled, rel=1e-12, abs=1e-12)


def test_goodput_is_the_exact_formula() -> None:
    hours = 54 * 24.0
    found = simulate(draw(CALM, hours, 0, 300, 1), PLAIN, CALM, hours)[:, engine.USEFUL] / hours
    expected = goodput.exact(CALM.mtbf_h, PLAIN.interval, PLAIN.stall, PLAIN.recover)
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert abs(found.mean() - expected) < 3 * error + 5e-4  # the end of the run cuts a cycle
    assert error < 1e-3


def test_checkpoints_beside_copies_are_the_exact_formula() -> None:
    """If each fault loses what is in memory, a job is one that has its checkpoints only."""
    cluster = Cluster(1024, 200.0, node_share=1.0, rack_share=0.0, spares=100_000)
    tau, stall, recover, hours = 0.2, 0.1, 0.05, 3000.0
    own = replace(PLAIN, interval=1 / 3600, stall=0.0, recover=recover, copies=1, distance=0)
    own = replace(own, disk_interval=tau, disk_stall=stall, disk_recover=recover)
    found = simulate(draw(cluster, hours, 0, 40, 1), own, cluster, hours)[:, engine.USEFUL] / hours
    error = found.std(ddof=1) / math.sqrt(len(found))
    expected = goodput.exact(cluster.mtbf_h, tau, stall, recover)
    assert abs(found.mean() - expected) < 3 * error + 5e-4


def test_losses_of_copies_are_the_formula() -> None:
    cluster = Cluster(400, 480.0, node_share=0.0, rack_share=0.0)  # 50 nodes, a fault each hour
    swap = replace(PLAIN, interval=20 / 3600, stall=0.0, copies=1, distance=7, recover=0.01)
    swap = replace(swap, protect=0.02, disk_recover=0.01)
    hours = 5000.0
    lost = simulate(draw(cluster, hours, 0, 20, 2), swap, cluster, hours)[:, engine.STATE_LOSSES]
    rate = survival.ring_rate(cluster.nodes, 1, 1 / cluster.mtbf_h / cluster.nodes, 0.03)
    expected = rate * hours * 20
    assert expected > 100
    # A fault within the window makes it longer, so a little more is lost.
    assert abs(lost.sum() - expected) < 3 * math.sqrt(expected) + 0.05 * expected


def test_a_state_in_one_node_is_lost_with_the_node_only() -> None:
    cluster = Cluster(1024, 100.0, node_share=0.3, rack_share=0.0, spares=10000)
    own = replace(PLAIN, copies=1, distance=0, soft_hurts=False)
    traces = draw(cluster, 500.0, 0, 1, 4)
    found = simulate(traces, own, cluster, 500.0)[0]
    times = np.isfinite(traces.times[0])
    assert found[engine.STATE_LOSSES] == (traces.kinds[0][times] == NODE).sum() > 5
    assert found[engine.FAULTS] > 2 * found[engine.STATE_LOSSES]


def test_chunks_do_not_change_a_trial() -> None:
    whole = draw(CALM, 200.0, 0, 6, 3)
    later = draw(CALM, 200.0, 4, 2, 3)
    for trial in range(2):
        times = later.times[trial][np.isfinite(later.times[trial])]
        assert (whole.times[4 + trial][: len(times)] == times).all()
        assert not (later.times[0][: len(times)] == later.times[1][: len(times)]).all()


def test_faults_that_cluster_have_the_same_rate() -> None:
    times = [draw(replace(CALM, weibull=0.7), 2000.0, i, 1, 5).times for i in range(20)]
    count = np.mean([np.isfinite(row).sum() for row in times])
    assert count == pytest.approx(2000 / CALM.mtbf_h, rel=0.05)


def test_zero_spares_wait_for_the_repair_itself() -> None:
    cluster = Cluster(8 * 8, 50.0, node_share=1.0, rack_share=0.0, spares=0)
    found = simulate(draw(cluster, 1000.0, 0, 1, 1), PLAIN, cluster, 1000.0)[0]
    assert 0 < found[engine.WAITING] < 1000
    plenty = replace(cluster, spares=1000)
    assert simulate(draw(plenty, 1000.0, 0, 1, 1), PLAIN, plenty, 1000.0)[0, engine.WAITING] == 0
