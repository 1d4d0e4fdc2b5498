"""Memory that changes silently at one of two replicas: noticed, named and repaired."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from job import TRAIN, Job, wait_for
from recovery_run import check, command, run, undisturbed

ARGUMENTS = ("--steps", "4", "--parallel", "ddp")
CASES = str(Path(__file__).parent / "programs" / "recovery_cases.py")
SEQUENCE = str(Path(__file__).parent / "programs" / "sequence_parallel.py")
SIX = ("--case", "sequence", "--steps", "6")
EACH = {"PYFT_CUT_EVERY": "1"}  # on a busy machine snapshots may cost so much that few are made
# One bit of the parameters that the optimizer has written at rank 1 in its third step.
FLIP = "flip,result=changed,kernel=PointwiseOpScalarList,device=1,in=3"


def flipped(
    folder: Path,
    *options: str,
    steps: int = 4,
    meanwhile: Callable[[Job], None] = lambda job: None,
    **environment: str,
) -> dict:
    """Train with a bit that flips; return the report."""
    line = ("--gpus", "soft:2", *options)
    arguments = ("--steps", str(steps), "--parallel", "ddp")
    environment = {"SOFTGPU_FAULT": FLIP, **EACH, **environment}
    got, found = run(folder, line, command(TRAIN, 2, arguments), meanwhile, **environment)
    assert tuple(got) == undisturbed(TRAIN, 2, arguments)
    assert "was flipped" in (folder / "stderr.txt").read_text()
    return found


def test_a_bit_that_flips_is_noticed_and_the_rank_is_named(tmp_path: Path) -> None:
    found = flipped(tmp_path)
    assert [(one["rank"], one["gpu"]) for one in found["corruptions"]] == [(1, 1)]
    assert sorted((f["rank"], f["fault"]) for f in found["faults"]) == [
        (0, "replica"),
        (1, "replica"),
    ]
    assert {(f["outcome"], f["verdict"]) for f in found["faults"]} == {("recovered", "exact")}
    assert (
        f"had something else in the block of [{found['corruptions'][0]['bytes']}] bytes"
        in (tmp_path / "stderr.txt").read_text()
    )


def test_a_suspect_goes_to_a_spare(tmp_path: Path) -> None:
    found = flipped(tmp_path, "--spares", "1")
    assert [one["rank"] for one in found["corruptions"]] == [1]
    assert 2 in {fault["gpu_to"] for fault in found["faults"]}


def test_a_cut_is_compared_while_it_is_copied(tmp_path: Path) -> None:
    later = FLIP.replace("in=3", "in=6")  # when it is known what may be copied behind a cut
    found = flipped(tmp_path, steps=10, PYFT_BACKGROUND_COPIES="always", SOFTGPU_FAULT=later)
    assert [one["rank"] for one in found["corruptions"]] == [1]
    stores = [
        channel["store"]
        for channel in json.loads((tmp_path / "report.json").read_text())["channels"]
    ]
    assert all(store["later_bytes"] > 0 for store in stores), stores


def test_the_agent_dies_when_it_has_found_a_difference(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_for(lambda: "replays tell which is right" in job.errors(), 120, "it is noticed")
        job.kill_agent()

    found = flipped(tmp_path, meanwhile=meanwhile)
    assert [(one["rank"], one["gpu"]) for one in found["corruptions"]] == [(1, 1)]
    assert found["agent_restarts"] == 1


def test_a_program_may_let_its_replicas_differ(tmp_path: Path) -> None:
    arguments = ("--case", "drift", "--steps", "6")
    line = ("--gpus", "soft:2")
    got, found = run(tmp_path, line, command(CASES, 2, arguments), **EACH)
    assert tuple(got) == undisturbed(CASES, 2, arguments)
    assert found["corruptions"] == []
    assert [f["fault"] for f in found["faults"]] == ["replica", "replica"], "once"
    assert found["verdict"] == "exact"
    assert (tmp_path / "stderr.txt").read_text().count("so the program lets them differ") == 1


def test_a_gradient_in_the_place_of_another_one_is_no_corruption(tmp_path: Path) -> None:
    got, found = run(tmp_path, ("--gpus", "soft:2"), command(SEQUENCE, 2, SIX), **EACH)
    assert tuple(got) == undisturbed(SEQUENCE, 2, SIX)
    assert found["faults"] == []
    stores = [
        channel["store"]
        for channel in json.loads((tmp_path / "report.json").read_text())["channels"]
    ]
    assert all(store["compared_cuts"] for store in stores), stores


def test_a_bit_that_flips_after_gradients_have_changed_places(tmp_path: Path) -> None:
    """Of the matrix that both ranks have, which the optimizer names first."""
    flip = {"SOFTGPU_FAULT": FLIP.replace("in=3", "in=5")}
    got, found = run(tmp_path, ("--gpus", "soft:2"), command(SEQUENCE, 2, SIX), **EACH, **flip)
    assert tuple(got) == undisturbed(SEQUENCE, 2, SIX)
    assert "was flipped" in (tmp_path / "stderr.txt").read_text()
    assert [(one["rank"], one["cut"]) for one in found["corruptions"]] == [(1, 5)]
    assert [fault["fault"] for fault in found["faults"]] == ["replica", "replica"]


def test_a_rank_that_dies_while_its_cut_waits(tmp_path: Path) -> None:
    fault = "server-kill,rank=1,step=2,call=1"
    check(tmp_path, (fault,), ranks=2, arguments=ARGUMENTS)
