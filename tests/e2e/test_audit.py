"""A kernel that computes wrongly is found by a replay on another GPU, and undone."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from job import TRAIN
from recovery_run import command, run, undisturbed

SMALL = ("--channels", "32", "--block", "16", "--batch", "2")
ARGUMENTS = ("--steps", "4", *SMALL)
# What the optimizer's kernel for many tensors writes, in step 3: no product, and told to nobody.
FLIP = "flip,kernel=PointwiseOpScalarList,result=changed,bit=5,device=0,in={}"
# Each step is audited, and the next snapshot waits for that.
EACH = {"PYFT_CUT_EVERY": "1", "PYFT_AUDIT_WAIT_S": "120"}


def line(ranks: int, spares: int = 1) -> tuple[str, ...]:
    return ("--gpus", f"soft:{ranks}", "--spares", str(spares), "--dmr", "audit")


def channels(folder: Path) -> list[dict]:
    return json.loads((folder / "report.json").read_text())["channels"]


def test_a_kernel_that_is_no_product_is_audited(tmp_path: Path) -> None:
    argv = command(TRAIN, 1, ARGUMENTS)
    got, found = run(tmp_path, line(1), argv, SOFTGPU_FAULT=FLIP.format(3), **EACH)
    errors = (tmp_path / "stderr.txt").read_text()
    assert "was flipped" in errors, errors
    (fault,) = found["faults"]
    assert (fault["rank"], fault["fault"], fault["outcome"]) == (0, "mismatch", "recovered"), errors
    assert fault["culprit"] == "rank"
    assert "replays on GPU [1] and GPU [0] agree" in fault["evidence"]
    assert tuple(got) == undisturbed(TRAIN, 1, ARGUMENTS)
    assert [(one["gpu"], one["left"]) for one in found["strikes"]] == [(0, False)]
    (audited,) = [one["audit"] for one in channels(tmp_path)]
    assert audited["ranks"] == 1
    assert audited["intervals"] >= 2
    assert audited["unaudited_first"] > 0
    assert audited["bytes"] > 0


def test_an_auditor_may_be_the_one_that_is_wrong(tmp_path: Path) -> None:
    argv = command(TRAIN, 1, ARGUMENTS)
    fault = {"PYFT_AUDIT_FAULT": FLIP.format(1)}
    got, found = run(tmp_path, line(1), argv, **fault, **EACH)
    errors = (tmp_path / "stderr.txt").read_text()
    assert "was flipped" in errors, errors
    assert "GPU [1] was wrong, which audited rank [0]" in errors, errors
    assert found["faults"] == []
    assert [(one["gpu"], one["left"]) for one in found["strikes"]] == [(1, False)]
    assert tuple(got) == undisturbed(TRAIN, 1, ARGUMENTS)
    (audited,) = [one["audit"] for one in channels(tmp_path)]
    assert (audited["ranks"], audited["auditors"]) == (0, 1)


@pytest.mark.long
def test_ranks_of_which_one_was_wrong_go_back_together(tmp_path: Path) -> None:
    arguments = (*ARGUMENTS, "--parallel", "ddp")
    argv = command(TRAIN, 2, arguments)
    flip = FLIP.format(3).replace("device=0", "device=1")
    got, found = run(tmp_path, line(2), argv, SOFTGPU_FAULT=flip, **EACH)
    errors = (tmp_path / "stderr.txt").read_text()
    assert "was flipped" in errors, errors
    assert sorted((f["rank"], f["fault"], f["outcome"]) for f in found["faults"]) == [
        (0, "peer-failed", "recovered"),
        (1, "mismatch", "recovered"),
    ], errors
    assert tuple(got) == undisturbed(TRAIN, 2, arguments)
    for audited in (one["audit"] for one in channels(tmp_path)):
        assert audited["intervals"] >= 2
        assert audited["unaudited_collectives"] == 0


def hashes(lines: Collection[str]) -> list[str]:
    """Return what has to be equal where a wrong loss was told: the parameters."""
    return [line for line in lines if "sha256=" in line]


@pytest.mark.parametrize(
    ("ranks", "wrong", "flip", "steps", "every"),
    [
        (1, 0, "byte=130,bit=6,device=0,in=3", 8, 2),
        # Rank 0 has computed rightly, and was told losses that rank 1 made wrong.
        pytest.param(2, 1, "byte=132,bit=6,device=1,in=4", 10, 3, marks=pytest.mark.long),
    ],
)
def test_what_was_told_before_a_correction_blames_no_gpu(
    tmp_path: Path, ranks: int, wrong: int, flip: str, steps: int, every: int
) -> None:
    arguments = ("--steps", str(steps), *SMALL, *(("--parallel", "ddp") if ranks > 1 else ()))
    environment = EACH | {"PYFT_CUT_EVERY": str(every)}
    fault = f"flip,kernel=PointwiseOpScalarList,result=changed,{flip}"
    argv = command(TRAIN, ranks, arguments)
    got, found = run(tmp_path, line(ranks), argv, SOFTGPU_FAULT=fault, **environment)
    errors = (tmp_path / "stderr.txt").read_text()
    # The loss is in the interval that is audited once the fault is corrected.
    assert found["verdict"] == "corrected", errors
    assert "cudaMemcpyAsync gives [4] bytes" in errors, errors
    assert [one["rank"] for one in found["faults"] if one["fault"] == "mismatch"] == [wrong], errors
    assert [(one["gpu"], one["left"]) for one in found["strikes"]] == [(wrong, False)], errors
    assert hashes(got) == hashes(undisturbed(TRAIN, ranks, arguments))
    audited = [one["audit"] for one in channels(tmp_path)]
    assert sum(one["ranks"] for one in audited) == 1
    assert all(one["intervals"] >= 2 for one in audited)
    assert all(one["unaudited_spare"] == one["unaudited_undecided"] == 0 for one in audited)
