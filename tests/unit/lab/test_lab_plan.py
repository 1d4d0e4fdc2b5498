"""Plans: what is simulated best is chosen, bounds come first, and what to set can be set."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import typer.main

from pyft.cli.main import app
from pyft_lab.command import cli
from pyft_lab.plan import report, search
from pyft_lab.sim.cluster import Cluster

JOB = search.Job(Cluster(4096, 6.4), days=20)


@pytest.fixture(scope="module")
def outcomes() -> list[search.Outcome]:
    return search.search(JOB)


def test_each_mechanism_is_simulated_and_the_best_is_first(
    outcomes: list[search.Outcome],
) -> None:
    assert {o.candidate.name for o in outcomes} == set(search.AVAILABLE)
    shares = [o.useful_share for o in outcomes]
    assert shares == sorted(shares, reverse=True)
    assert len(outcomes) == search.SIMULATED


def test_formulas_are_near_simulation_where_spares_are_enough() -> None:
    job = replace(JOB, cluster=replace(JOB.cluster, rack_share=0.0))
    plenty = max(c.spares for c in search.candidates(job))
    for name in search.AVAILABLE:
        one = next(c for c in search.candidates(job) if (c.name, c.spares) == (name, plenty))
        assert search.outcome(job, one).useful_share == pytest.approx(
            search.estimate(job, one), abs=0.01
        )


def test_a_bound_comes_before_goodput(outcomes: list[search.Outcome]) -> None:
    bounded = search.ranked(replace(JOB, max_loss=0.5), outcomes)
    assert not bounded[0].candidate.mechanism.copies
    last = bounded[-1].candidate
    assert last.name == "pyft"
    assert last.mechanism.copies


def test_a_bound_below_what_so_few_runs_can_show_is_kept_all_the_same() -> None:
    cluster = Cluster(65536, 6.4, node_share=0.3, rack_share=0.0)
    job = search.Job(cluster, days=2, max_loss=1e-4, mechanisms=("pyft-mirror", "restart"))
    outcomes = search.search(job)
    mirror = next(o for o in outcomes if o.candidate.mechanism.copies)
    assert mirror.summary.p_state_lost == 0  # in no run
    assert 1e-4 < mirror.p_lost < 0.02
    assert outcomes[0].candidate.name == "restart"


def test_no_spares_cost_more_than_some(outcomes: list[search.Outcome]) -> None:
    best = outcomes[0]
    none = search.outcome(JOB, replace(best.candidate, spares=0))
    assert none.summary.waiting > best.summary.waiting
    assert none.useful_share < best.useful_share


def test_what_it_depends_on_has_faults_and_is_sorted(outcomes: list[search.Outcome]) -> None:
    rows = search.sensitivity(replace(JOB, days=5), outcomes[0])
    widths = [abs(low - high) for _, low, high in rows]
    assert widths == sorted(widths, reverse=True)
    found = {name: (low, high) for name, low, high in rows}
    assert found["faults x 0.5, x 2"][0] > found["faults x 0.5, x 2"][1]
    assert found["recover_s"][0] >= found["recover_s"][1]


def test_options_of_a_plan_are_options_of_pyft_run(outcomes: list[search.Outcome]) -> None:
    pyft = next(o for o in outcomes if o.candidate.name == "pyft")
    line = next(line for line in report.settings(JOB, pyft) if line.startswith("pyft run"))
    words = line.split(" -- ")[0].split()[2:]
    context = typer.main.get_command(app).commands["run"]
    known = {name for option in context.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("name", ["pyft-mirror", "deadpool", "reft", "jit"])
def test_what_does_not_exist_has_no_command(name: str) -> None:
    job = replace(JOB, days=2, mechanisms=(name,))
    candidate = search.candidates(job)[0]
    lines = report.settings(job, search.outcome(job, candidate))
    assert not [line for line in lines if line.startswith(("pyft run", "torchrun"))]
    assert any(f"[{name}]" in line for line in lines)


def test_the_command_says_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.process_time()
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", "--gpus", "2048", "--mtbf-h", "10", "--days", "10", "--gpu-hour", "2"])
    assert ended.value.code == 0
    assert time.process_time() - begin < 10
    out = capsys.readouterr().out
    assert "a fault each 600 min" in out
    for words in (
        "What to set:",
        "scheduler: keep",
        "97 % takes",
        "depends on",
        "each 10 h, as given",
    ):
        assert words.replace("97 %", "97%") in out, words


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--mechanisms", "magic"], "no mechanism [magic]"),
        (["--mechanisms", "pyft", "--max-loss", "0", "--days", "5"], "no candidate keeps the chance"),
        (["--mtbf-h", "3", "--per-1000-node-days", "4"], "give one of"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_sentence(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", "--gpus", "4096", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
