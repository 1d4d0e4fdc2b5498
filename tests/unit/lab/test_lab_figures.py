"""Figures and pages: equal results make equal files, and nothing leads elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyft_lab.command import figures, page
from pyft_lab.command.report import compare
from pyft_lab.matrix.runner import Result
from pyft_lab.matrix.spec import Cell, Fault
from pyft_lab.sim import sweep

FAULT = Fault(7, 0, "backward", "gpu-lost")
PHASES = {"notice and launch": 0.4, "import": 2.0}


def result(mechanism: str, seed: int, lost: float, good: bool = True) -> Result:
    faults = (FAULT,) if lost else ()
    cell = Cell("soft", "gpt", mechanism, 2, 40, 10 if lost else 0, seed, faults)
    cost = {"kind": "gpu-lost", "moment": "backward", "step": 7, "lost_s": lost, "phases_s": PHASES}
    oracle = {"losses": [] if good else ["step 3: <b>differs"]}
    data = {"claimed": True, "good": good, "status": "done", "attempts": 1, "step_s": 0.1}
    data |= {"wall_s": 4.0 + lost, "replayed": 0, "load1": 1.0, "run_s": 9.0, "oracle": oracle}
    return Result(cell, Path("folder"), {**data, "faults": [cost] if lost else []}, cached=False)


def matrix() -> list[Result]:
    return [
        made
        for seed in (1, 2, 3)
        for made in (
            result("none", seed, 0), result("blocking", seed, 8 + seed),
            result("pyft-snapshot", seed, 0.4 + seed / 100),
        )
    ]  # fmt: skip


def test_equal_results_make_equal_files_without_links(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        written = page.write(matrix(), tmp_path / name, "pyft lab run m.toml")
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        texts.append([path.read_bytes() for path in files])
        assert "http" not in written.read_text()
        assert written.stat().st_size < 3_000_000
    assert texts[0] == texts[1]
    names = {path.name for path in files}
    assert {"lost-time.svg", "lost-time.png", "ratios.svg", "results.csv", "faults.jsonl"} <= names
    rows = [json.loads(line) for line in (tmp_path / "one" / "faults.jsonl").open()]
    assert len(rows) == 6
    assert "pyft-snapshot 4.21 %" in written.read_text()  # of what one costs blocking


def test_ratios_are_those_of_the_pairs() -> None:
    (blocking, snapshot) = compare(matrix())
    assert blocking.cost is None  # by itself
    assert blocking.goodput is None
    assert snapshot.goodput is not None
    assert 13.0 / 4.41 < snapshot.goodput.ratio < 15.0 / 4.43  # 13 to 15 s by 4.41 to 4.43 s
    assert snapshot.goodput.pairs == 3
    assert snapshot.cost is not None
    assert snapshot.cost.low < 0.042 < snapshot.cost.high
    assert snapshot.overhead is not None
    assert snapshot.overhead.ratio == pytest.approx(1)


@pytest.mark.parametrize("more", [{"steps": 400}, {"ranks_after": 1}])
def test_runs_of_other_lengths_or_ranks_are_no_pair(more: dict[str, int]) -> None:
    """`lab report` has the cells of all matrices that were run into a folder."""
    others = [result("blocking", seed, 500) for seed in (1, 2, 3)]
    others = [replace(run, cell=replace(run.cell, **more)) for run in others]
    assert compare([*matrix(), *others])[1] == compare(matrix())[1]


def test_a_fault_that_costs_nothing_is_in_the_goodput_and_in_means() -> None:
    runs = matrix()
    free = [run for run in runs if run.cell.mechanism == "pyft-snapshot"]
    free[0].data["faults"][0]["lost_s"] = 0.0  # alone there is no ratio of it
    free[1].data["faults"].append(free[1].data["faults"][0] | {"lost_s": -0.02})
    snapshot = compare(runs)[1]
    assert snapshot.goodput is not None
    assert snapshot.goodput.pairs == 3
    assert snapshot.cost is not None
    assert snapshot.cost.pairs == 2


def test_runs_that_share_a_reference_are_one_pair_of_steps() -> None:
    """Each other schedule or kind of faults says nothing new of the reference's own luck."""
    runs = matrix()
    again = [replace(run, cell=replace(run.cell, faults=(replace(FAULT, step=8),))) for run in runs]
    both = compare([*runs, *[run for run in again if run.cell.mechanism != "none"]])[1]
    assert both.overhead is not None
    assert both.overhead.pairs == 3
    assert both.cost is not None
    assert both.cost.pairs == 6  # each has a run of `blocking` of its own


def test_samples_that_were_left_out_are_no_goodput() -> None:
    runs = matrix()
    for run in runs:
        if run.cell.mechanism == "pyft-snapshot":
            run.data["left_out"] = 16 * 40 // 4  # of steps that were done without a rank
    whole, less = (compare(of)[1].goodput for of in (matrix(), runs))
    assert whole is not None
    assert less is not None
    assert less.ratio / whole.ratio == pytest.approx(0.75)


def test_substrates_have_no_interval_in_common() -> None:
    others = [replace(r, cell=replace(r.cell, substrate="cpu")) for r in matrix()]
    for run in others:
        run.data["wall_s"] *= 2
    found = {one.mechanism: one for one in compare([*matrix(), *others])}
    assert {*found} == {"blocking (cpu)", "blocking (soft)", "pyft-snapshot (cpu)",
                        "pyft-snapshot (soft)"}  # fmt: skip
    assert all(one.overhead.pairs == 3 for one in found.values() if one.overhead)
    assert replace(found["pyft-snapshot (soft)"], mechanism="pyft-snapshot") == compare(matrix())[1]
    assert {*page.outcomes([*matrix(), *others])} == {*found}


def test_a_wrong_cell_is_told_and_not_compared(tmp_path: Path) -> None:
    results = [*matrix()[:-1], result("pyft-snapshot", 3, 0.4, good=False)]
    text = page.write(results, tmp_path, "x").read_text()
    assert "Wrong cells" in text
    assert "&lt;b&gt;differs" in text  # what a run has written is no HTML
    assert compare(results)[1].cost.pairs == 2  # type: ignore[union-attr]


def test_one_wrong_run_marks_its_mechanism_whatever_came_after_it(tmp_path: Path) -> None:
    results = [result("pyft-snapshot", seed, 0.4, good=seed != 1) for seed in (1, 2)]
    for order in (results, results[::-1]):
        text = page.write(order, tmp_path, "x").read_text()
        assert '<td class="wrong">' in text


def test_bars_are_as_long_as_the_mean_cost_if_faults_have_other_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [result("pyft-movable", 1, 4.0), result("pyft-movable", 2, 8.0)]
    runs[0].data["faults"][0]["phases_s"] = {"detect": 1.0, "restore": 3.0}
    runs[1].data["faults"][0]["phases_s"] = {"import": 8.0}
    drawn = []
    monkeypatch.setattr(figures, "write", lambda figure, path: drawn.append(figure) or path)
    figures.phases(runs, tmp_path)
    (axes,) = drawn[0].axes
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert max(ends) == pytest.approx(6.0)  # 4 and 8 s


def test_goodput_is_drawn_with_its_bands(tmp_path: Path) -> None:
    points = sweep.sweep([1024, 4096], "llama3", 5, 4, 1)
    svg = figures.goodput(points, tmp_path / "g.svg").read_text()
    assert "pyft-mirror" in svg
    assert (tmp_path / "g.png").stat().st_size > 1000
