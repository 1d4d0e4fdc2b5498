"""The short form of `make kill-sweep SWEEP="--rehearse 8b"`: a mixture of experts loses a server."""

from __future__ import annotations

import sys
from pathlib import Path

from recovery_run import command, run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import rehearse
from places import Place

PROGRAM = str(Path(__file__).with_name("programs") / "parallel_cases.py")
# The log of a step is given as twice what it is: the ring holds five, not two. On a busy machine a
# rank may be that far behind another one.
SMALL = rehearse.Small(step_s=0.4, copied_mb=0.4, ring_kb=160)
FAULT = "server-kill,rank=1,step=4,call=90"


def test_a_large_job_with_noise_loses_a_server(tmp_path: Path) -> None:
    """Two ranks that read counts and norms; copies take half of a step."""
    argv = command(PROGRAM, 2, ("--case", "moe", "--steps", "6"))
    options = ("--gpus", "soft:2", "--inject", FAULT, "--divergence", "report")
    ratios = rehearse.settings(rehearse.LARGE["8b"], SMALL) | {"PYFT_HANG_S": "20"}
    lines, recovery = run(tmp_path, options, argv, **ratios, SOFTGPU_NOISE="7")
    assert sum("loss=" in line for line in lines) == 12
    assert recovery["given_up"] == 0
    assert {fault["rank"] for fault in recovery["faults"]} == {0, 1}, "all replay"
    assert not rehearse.too_often(Place((FAULT,)), recovery)
    assert recovery["verdict"] in ("exact", "equivalent")
    assert recovery["protected_share"] == 1.0
