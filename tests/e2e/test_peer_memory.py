"""A new server copies from the GPU of a living replica, and from the stores what that has changed."""

from __future__ import annotations

from pathlib import Path

from recovery_run import check
from test_recovery_jit import LEARNED, STEPS

ALWAYS = {"PYFT_PEER_MEMORY": "1", "PYFT_CUT_EVERY": "1"}  # soft GPUs do it for tests only
IN_BACKWARD = f"server-kill,rank=1,step={LEARNED},call=60"
MOST = 5e6  # parameters and optimizer states


def test_what_the_other_rank_has_comes_from_its_gpu(tmp_path: Path) -> None:
    report = check(tmp_path, (IN_BACKWARD,), ranks=2, arguments=STEPS, **ALWAYS)
    assert report["faults"][0]["peer_bytes"] > MOST


def test_who_has_gone_on_has_other_bytes(tmp_path: Path) -> None:
    """Two optimizer steps after the recovery point: only what no step changes is as it was."""
    fault = "server-kill,rank=1,step=6,call=60"
    every = {"PYFT_CUT_EVERY": "4"}
    report = check(tmp_path, (fault,), ranks=2, arguments=STEPS, **ALWAYS | every)
    assert report["faults"][0]["cut"] <= 4  # less where that one was not decided in time
    assert report["faults"][0]["peer_bytes"] < MOST / 2


def test_who_lends_dies_of_it(tmp_path: Path) -> None:
    env = ALWAYS | {"PYFT_FAULT": "lend.before_answer:2"}
    report = check(
        tmp_path,
        (IN_BACKWARD,),
        ranks=2,
        arguments=STEPS,
        recovered=-1,
        dead={0, 1},
        protect="capture",
        **env,
    )
    assert sorted({fault["rank"] for fault in report["faults"]}) == [0, 1]
