"""Constants from made-up cells whose truth is known, and what they predict."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyft_lab.command import fit
from pyft_lab.errors import LabError
from pyft_lab.matrix import spec
from pyft_lab.matrix.runner import Result, load
from pyft_lab.matrix.spec import Cell, Fault

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STEP_S, RECOVER_S = 0.5, {"blocking": 8.0, "pyft-snapshot": 0.4}


def result(mechanism: str, seed: int, step: int, spread: float = 0.1) -> Result:
    """Return a run whose fault costs what the model says, but for some noise."""
    fault = Fault(step, 0, "backward", "gpu-lost")
    cell = Cell("soft", "gpt", mechanism, 2, 40, 10, seed, (fault,))
    again = step % 10 if mechanism == "blocking" else 0
    noise = random.Random(f"{mechanism} {seed}").gauss(0, spread)
    lost = RECOVER_S[mechanism] * (1 + noise) + again * STEP_S
    cost = {"kind": "gpu-lost", "moment": "backward", "step": step, "lost_s": lost, "phases_s": {}}
    data = {"claimed": True, "good": True, "step_s": STEP_S, "wall_s": 20 + lost, "faults": [cost]}
    return Result(cell, Path(), data, cached=True)


def cells(count: int = 12) -> list[Result]:
    steps = random.Random(1)
    return [result(m, seed, steps.randrange(1, 39)) for seed in range(count) for m in RECOVER_S]


def test_what_was_put_in_is_found_again() -> None:
    found = tomllib.loads(fit.constants(cells()))
    for name, recover in RECOVER_S.items():
        mean, low, high = found[name]["recover_s"]
        assert low < recover < high
        assert abs(mean / recover - 1) < 0.15
        assert found[name]["from"] == "measured-soft: 12 faults in 12 runs"
    assert found["pyft-snapshot"]["replayed_steps"] == [0, 0, 0]
    assert 1 < found["blocking"]["replayed_steps"][0] < 9


def test_half_of_the_seeds_predict_the_others_and_a_wrong_model_does_not() -> None:
    predictions = fit.predict(fit.samples(cells()))
    assert [p.holds for p in predictions] == [True, True]
    assert fit.orders(predictions) == (1, 1)
    odd = [r for r in cells() if r.cell.seed % 2]
    for run in odd:  # what happens in the other half is not what the model says
        run.data["faults"][0]["lost_s"] *= 3
    wrong = fit.predict(fit.samples([r for r in cells() if not r.cell.seed % 2] + odd))
    assert [p.holds for p in wrong] == [False, False]


def test_steps_that_were_counted_are_fitted_and_those_of_the_model_predicted() -> None:
    """A write in the background was not whole: an interval more was done again than the model has."""
    runs = [run for run in cells() if run.cell.mechanism == "blocking"]
    for run in runs:
        (fault,) = run.data["faults"]
        again = fault["step"] % 10 + 10
        fault |= {"again": again, "lost_s": RECOVER_S["blocking"] + again * STEP_S}
    found = tomllib.loads(fit.constants(runs))["blocking"]
    assert found["recover_s"][0] == pytest.approx(RECOVER_S["blocking"])
    assert found["replayed_steps"][0] > 10
    (predicted,) = fit.predict(fit.samples(runs))
    assert not predicted.holds  # the model lacks 5 s


def test_too_few_runs_predict_nothing() -> None:
    assert fit.predict(fit.samples(cells(4))) == []


def test_steps_that_are_done_again_follow_the_kind_of_fault() -> None:
    kinds = {"gpu-lost": 7, "torn": 17, "eio": 10, "disk-full": 10, "slow-write": 0}
    run = result("blocking", 1, 27)
    assert {kind: fit.steps_again(run, 27, kind) for kind in kinds} == kinds
    assert fit.steps_again(result("pyft-snapshot", 1, 27), 27, "gpu-lost") == 0


@pytest.mark.parametrize(
    ("mechanism", "kinds"),
    [
        ("memory", {"rank-kill": 7, "torn": 7, "memory-lost": 27, "job-kill": 27, "disk-lost": 27}),
        ("peers", {"rank-kill": 7, "torn": 7, "memory-lost": 7, "job-kill": 27, "disk-lost": 27}),
        ("blocking", {"memory-lost": 7, "job-kill": 7, "disk-lost": 27}),
    ],
)
def test_what_a_fault_takes_with_it_is_done_again(mechanism: str, kinds: dict[str, int]) -> None:
    run = result("blocking", 1, 27)
    run = replace(run, cell=replace(run.cell, mechanism=mechanism))
    assert {kind: fit.steps_again(run, 27, kind) for kind in kinds} == kinds


def test_substrates_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="one is needed"):
        fit.read(tmp_path)
    assert load(tmp_path) == []


@pytest.mark.parametrize(("name", "left_out"), [("fit.toml", set()), ("replay.toml", {"sticky"})])
def test_which_kinds_of_faults_a_matrix_has_on_both_sides(name: str, left_out: set[str]) -> None:
    """Three seeds whose kinds take turns leave one kind without a prediction."""
    cells = [cell for cell in spec.expand(spec.read(Path(name))) if cell.faults]
    seeds = sorted({cell.seed for cell in cells})
    missing = set()
    for mechanism in {cell.mechanism for cell in cells}:
        for kind in ("gpu-lost", "sticky", "ecc"):
            with_it = [
                cell.seed in seeds[::2]
                for cell in cells
                if cell.mechanism == mechanism and kind in {fault.kind for fault in cell.faults}
            ]
            if min(with_it.count(True), with_it.count(False)) < fit.ENOUGH:
                missing.add(kind)
    assert missing == left_out
