"""A new server copies from the GPU of a living replica, and from the stores what that has changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from job import PYFT, Job, wait_for
from recovery_run import check
from test_recovery_jit import LEARNED, STEPS

ALWAYS = {"PYFT_PEER_MEMORY": "1", "PYFT_CUT_EVERY": "1"}  # soft GPUs do it for tests only
IN_BACKWARD = f"server-kill,rank=1,step={LEARNED},call=60"
MOST = 5e6  # parameters and optimizer states
WIDE = 1e6  # the same of the program that stands still
STEADY = str(Path(__file__).with_name("programs") / "steady.py")
STANDS_AT = 5  # the cut before the step in which it stands still


def kill_when_all_have_the_cut(job: Job, folder: Path) -> None:
    """End rank 1's server once the cut is the committed snapshot of both, before anybody goes on.

    A cut becomes one when the ranks have compared it, however many entries follow until then. Who
    dies before that goes back to the cut before, which the other rank has overwritten.
    """

    def channels() -> dict[int, dict]:
        line = [PYFT, "status", "--json", str(job.log_dir)]
        (state,) = json.loads(subprocess.check_output(line, timeout=60))
        return {channel["rank"]: channel for channel in state["channels"]}

    def have_it() -> bool:
        points = [channel["protection"] for channel in channels().values()]
        return points == [f"last snapshot at cut {STANDS_AT}"] * 2

    standing = [folder / f"standing-{rank}" for rank in (0, 1)]
    wait_for(lambda: all(path.exists() for path in standing), 120, f"they stand: {job.errors()}")
    wait_for(have_it, 60, f"both have cut {STANDS_AT}: {job.errors()}")
    os.kill(channels()[1]["server_pid"], signal.SIGKILL)
    (folder / "go").touch()  # the other one needs rank 1 in the next step, before its optimizer


def test_what_the_other_rank_has_comes_from_its_gpu(tmp_path: Path) -> None:
    report = check(
        tmp_path,
        (),
        ranks=2,
        program=STEADY,
        arguments=(str(tmp_path), "wide"),
        recovered=1,
        meanwhile=lambda job: kill_when_all_have_the_cut(job, tmp_path),
        **ALWAYS,
    )
    assert report["faults"][0]["peer_bytes"] > WIDE


def test_who_has_gone_on_has_other_bytes(tmp_path: Path) -> None:
    """Two optimizer steps after the committed snapshot: only what no step changes is as it was."""
    fault = "server-kill,rank=1,step=6,call=60"
    every = {"PYFT_CUT_EVERY": "4"}
    report = check(tmp_path, (fault,), ranks=2, arguments=STEPS, **ALWAYS | every)
    assert report["faults"][0]["cut"] <= 4  # less where that one was not decided in time
    assert report["faults"][0]["peer_bytes"] < MOST / 2


def test_who_lends_dies_of_it(tmp_path: Path) -> None:
    env = ALWAYS | {"PYFT_FAULT": "export.before_answer:2"}
    report = check(
        tmp_path,
        (IN_BACKWARD,),
        ranks=2,
        arguments=STEPS,
        deaths=[0, 1],
        protect="snapshot",
        **env,
    )
    assert sorted({fault["rank"] for fault in report["faults"]}) == [0, 1]
