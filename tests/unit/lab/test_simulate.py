"""Runs of the simulator: seeds decide, threads do not; constants have provenance and bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyft_lab.command import cli
from pyft_lab.errors import SpecError
from pyft_lab.sim import constants, engine, simulate, sweep
from pyft_lab.sim.cluster import Cluster, Mechanism

CLUSTER = Cluster(4096, 6.4)
HOURS = 10 * 24.0


@pytest.fixture
def chosen() -> dict[str, Mechanism]:
    known = constants.mechanisms()
    return {
        name: simulate.configure(CLUSTER, c, known["restart"], 20.0) for name, c in known.items()
    }


def rows_of(chosen: dict[str, Mechanism], trials: int) -> dict[str, np.ndarray]:
    return {name: np.tile(np.array(m.numbers()), (trials, 1)) for name, m in chosen.items()}


def test_threads_and_chunks_change_nothing(
    chosen: dict[str, Mechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(chosen, 12)
    one = simulate.run(CLUSTER, rows, HOURS, seed=3, threads=1)
    monkeypatch.setattr(simulate, "CHUNK", 5)
    two = simulate.run(CLUSTER, rows, HOURS, seed=3, threads=2)
    other = simulate.run(CLUSTER, rows, HOURS, seed=4, threads=2)
    assert all((one[name] == two[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_all_mechanisms_meet_the_same_faults(chosen: dict[str, Mechanism]) -> None:
    found = simulate.run(CLUSTER, rows_of(chosen, 4), HOURS, seed=1)
    counts = [out[:, engine.FAULTS].tolist() for out in found.values()]
    assert all(count == counts[0] for count in counts)
    assert all(
        out[:, :6].sum(axis=1) == pytest.approx([HOURS] * 4, rel=1e-9) for out in found.values()
    )


@pytest.mark.parametrize("runs", [3, 5, 10, 50])
def test_the_interval_of_goodput_covers_93_to_97_percent(
    chosen: dict[str, Mechanism], runs: int
) -> None:
    """Of runs drawn from many, whose mean is known; 1.96 errors of 3 runs cover less than 86 %."""
    found = simulate.run(CLUSTER, rows_of(chosen, 1500), HOURS, seed=5)
    for name in ("restart", "async", "reft", "pyft"):
        many, draw = found[name][:, engine.USEFUL], np.random.default_rng(runs)
        drawn = many[draw.integers(0, len(many), (2000, runs))]
        error = np.array([simulate.error_of_mean(row) for row in drawn])
        off = np.abs(drawn.mean(axis=1) - many.mean())
        assert 0.93 <= (off <= error).mean() <= 0.97, name
        normal = 1.96 * drawn.std(axis=1, ddof=1) / runs**0.5
        assert runs > 3 or (off <= normal).mean() < 0.86


def test_an_interval_is_near_the_best(chosen: dict[str, Mechanism]) -> None:
    own = chosen["restart"]
    tried = {by: replace(own, interval=own.interval * by) for by in (0.4, 1.0, 2.5)}
    found = simulate.run(CLUSTER, rows_of(tried, 60), HOURS, seed=1)
    goodput = {by: out[:, engine.USEFUL].mean() for by, out in found.items()}
    assert goodput[1.0] > max(goodput[0.4], goodput[2.5])


def test_draws_stay_within_their_bounds_around_the_value(chosen: dict[str, Mechanism]) -> None:
    known = constants.mechanisms()
    for name, mechanism in chosen.items():
        rows = simulate.drawn(mechanism, known[name], known["restart"], 400, 1)
        value, low, high = known[name].recover_s
        seconds = rows[:, 3] * 3600
        assert low <= seconds.min() < value < seconds.max() <= high
        assert (seconds < value).mean() == pytest.approx(0.5, abs=0.1)
        assert (rows[:, 2] <= rows[:, 0] + rows[:, 1]).all()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[m]\ntitle = "x"\nrecover_s = [5, 1, 9]\nfrom = {}', "m].from.recover_s begins with none"),
        ('[m]\ntitle = "x"\nrecover_s = [5, 6, 9]\nfrom.recover_s = "assumed"', "5 is not in 6 to 9"),
        ('[m]\ntitle = "x"\nrecover_s = [5, 1, 9]\nfrom.recover_s = "measured-soft: z"', "begins with"),
        ('[m]\ntitle = "x"\nrecovers = [5, 1, 9]\nfrom = {}', "recovers|recover_s"),
        ("[m", "cannot read"),
    ],
)  # fmt: skip
def test_constants_without_provenance_or_bounds_are_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=problem):
        constants.mechanisms(path)


def test_every_constant_that_counts_says_where_it_is_from() -> None:
    for name, entry in constants.mechanisms().items():
        assert "recover_s" in entry.provenance, name
        assert all(where.startswith(constants.KINDS) for where in entry.provenance.values())


@pytest.mark.parametrize(
    ("trace", "rate"), [("llama3", 419 / 54 / 2048 * 1000), ("opt175b", 105 / 60 / 124 * 1000)]
)
def test_a_rate_that_no_paper_prints_is_computed_from_its_counts(trace: str, rate: float) -> None:
    found, source = constants.rate_of(trace)
    assert found == pytest.approx(rate, rel=1e-12)
    assert source.startswith("computed from counts that are published: ")


def test_the_command_prints_points_and_what_they_rest_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "points.json"
    words = [
        "simulate",
        "--gpus",
        "1024,16384",
        "--trials",
        "3",
        "--days",
        "5",
        "--json",
        str(path),
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "pyft.recover_s = 12 (5 to 60): assumed" in out
    data = json.loads(path.read_text())
    found = {(p["gpus"], p["mechanism"]): p["summary"]["goodput"] for p in data["points"]}
    assert len(found) == 2 * len(constants.mechanisms())
    assert found[1024, "restart"] > found[16384, "restart"] > 0.7
    assert any("assumed: 35% of faults take a node" in line for line in data["assumptions"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["--trace", "moon"], "no trace [moon]"), (["--gpus", "1k"], "--gpus [1k]")],
)
def test_what_cannot_be_simulated_is_one_sentence(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_racks_ask_for_more_spares() -> None:
    assert simulate.enough_spares(CLUSTER) > simulate.enough_spares(
        replace(CLUSTER, node_share=0.1)
    )
    assert sweep.SCALES[-1] == 100_000


@pytest.mark.parametrize("gpus", [256, 512])
def test_copies_in_a_small_cluster_are_in_another_node(gpus: int) -> None:
    """DEADPOOL's distance of 64 nodes leads back to the node itself in one of 32 or 64."""
    cluster, known = Cluster(gpus, 20.0, rack_share=0.0), constants.mechanisms()
    mirror = simulate.configure(cluster, known["pyft-mirror"], known["restart"], 20.0)
    rows = {"": np.tile(np.array(mirror.numbers()), (20, 1))}
    out = simulate.run(cluster, rows, 24 * 30.0, 1)[""]
    nodes_lost = out[:, engine.FAULTS].mean() * cluster.node_share
    assert nodes_lost > 3
    assert out[:, engine.STATE_LOSSES].mean() < 0.1 * nodes_lost
