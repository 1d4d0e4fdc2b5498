"""Ranks that come and go: how they are started, and that each oracle about them can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyft_lab.command import fit
from pyft_lab.matrix.runner import Result
from pyft_lab.matrix.spec import Cell, Fault
from pyft_lab.matrix.supervisor import Action, Supervisor
from pyft_lab.oracles import absence_oracle

Rows = list[list[dict[str, Any]]]  # lines per rank


def test_a_supervisor_can_start_the_one_that_failed() -> None:
    one = Supervisor(max_restarts=1, timeout_s=10, one_by_one=True)
    assert one.next([None, -9], 0) is Action.LAUNCH_ONE
    assert one.attempt == 1
    assert one.next([None, None], 1) is Action.WAIT
    assert one.next([0, None], 1) is Action.WAIT
    assert one.next([0, 1], 1) is Action.GIVE_UP


def write(folder: Path, rows: Rows) -> Path:
    (folder / "ranks").mkdir(parents=True)
    for rank, lines in enumerate(rows):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "ranks" / f"{rank}.jsonl").write_text(text)
        (folder / f"final-{rank}").write_text("same")
    return folder


def line(step: int, rank: int, there: list[int], t: float = 0.0) -> dict[str, Any]:
    loss = f"{step} {rank} {there}"
    return {"step": step, "with": there, "ids": [2 * step + rank], "loss": loss,
            "t": t or float(step), "attempt": 0}  # fmt: skip


BOTH = [0, 1]
WHOLE = [[line(step, rank, BOTH) for step in range(6)] for rank in BOTH]
PLANNED = [
    [line(step, 0, [0] if step in (2, 3) else BOTH) for step in range(6)],
    [line(step, 1, BOTH) for step in (0, 1, 4, 5)],
]


def judge(tmp_path: Path, rows: Rows, *faults: Fault, plan: Rows = PLANNED) -> tuple[set[str], int]:
    """Return which oracles find something, and how many samples were left out."""
    folders = [("planned", plan), ("whole", WHOLE), ("run", rows)]
    planned, whole, made = (write(tmp_path / name, of) for name, of in folders)
    verdict, missing = absence_oracle.judge(made, planned, whole, 2, 6, faults)
    return {name for name, problems in vars(verdict).items() if problems}, missing


FAULT = Fault(2, 1, "forward", "rank-kill")


def test_what_equals_the_plan_is_good(tmp_path: Path) -> None:
    assert judge(tmp_path, PLANNED, FAULT) == (set(), 2)


def test_who_died_after_giving_its_share_has_taken_part(tmp_path: Path) -> None:
    fault = Fault(1, 1, "optimizer", "rank-kill")
    rows = [PLANNED[0], [at for at in PLANNED[1] if at["step"] != 1]]
    assert judge(tmp_path, rows, fault) == (set(), 2)
    assert judge(tmp_path / "not", rows, FAULT)[0] == {"samples", "losses"}


def test_a_step_that_others_did_again_counts_as_they_did_it(tmp_path: Path) -> None:
    lost = line(2, 1, BOTH, t=1.5)
    assert judge(tmp_path, [PLANNED[0], [*PLANNED[1], lost]], FAULT) == (set(), 2)


def test_absences_need_faults(tmp_path: Path) -> None:
    assert judge(tmp_path, PLANNED)[0] == {"samples"}
    assert judge(tmp_path / "other", PLANNED, Fault(2, 0, "", "rank-kill"))[0] == {"samples"}


def test_all_say_the_same_of_who_took_part(tmp_path: Path) -> None:
    rows = [PLANNED[0], [*PLANNED[1][:-1], line(5, 1, [1], t=4.5)]]
    found, _ = judge(tmp_path, rows, FAULT)
    assert found == {"losses", "samples"}


def test_who_says_that_all_were_there_lacks_their_samples(tmp_path: Path) -> None:
    claimed = [line(step, 0, BOTH) for step in range(6)]
    found, missing = judge(tmp_path, [claimed, PLANNED[1]], FAULT, plan=WHOLE)
    assert found == {"samples", "losses"}
    assert missing == 1  # of the fault's own step the bits decide


def test_samples_of_other_steps_are_found(tmp_path: Path) -> None:
    rows = [[at | {"ids": [0]} if at["step"] == 3 else at for at in PLANNED[0]], PLANNED[1]]
    assert judge(tmp_path, rows, FAULT) == ({"samples"}, 3)


def test_what_a_run_must_equal_is_named_by_who_was_away() -> None:
    cell = Cell("cpu", "mlp", "torchft", 2, 6, 5, 1, (FAULT,))
    assert cell.without([]) == cell.reference
    planned = cell.without([(1, 2, 4)])
    assert [(f.step, f.rank, f.kind) for f in planned.faults] == [(2, 1, "away"), (4, 1, "back")]
    assert planned.reference == planned
    assert planned.name == "absences by plan, mlp, seed 1"
    assert planned.key != cell.without([(1, 2, 5)]).key


def test_the_time_that_a_job_lost_is_not_that_of_the_rank(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", PLANNED)
    (folder / "fired-0").write_text('{"t": 1.5}')
    (cost,) = absence_oracle.costs(folder, [FAULT], 2)
    assert cost["lost_s"] == 0.0  # of steps of a second each
    assert cost["away_s"] == 2.0
    result = Result(Cell("cpu", "mlp", "torchft", 2, 6, 5, 1, (FAULT,)), folder, {}, cached=False)
    assert fit.steps_again(result, FAULT.step, FAULT.kind) == 0
