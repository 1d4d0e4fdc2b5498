"""What replicas have in common stays in their GPUs, and is written down when one of them dies."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from job import TRAIN, Job, wait_for
from recovery_run import check, command, run, undisturbed

HOST_CASES = str(Path(__file__).parent / "programs" / "host_cases.py")
STEPS = ("--steps", "10")
EACH = {"PYFT_CUT_EVERY": "1"}
JIT = {"protect": "jit", **EACH}
LEARNED = 7  # the step from which on parameters are known to rest until the optimizer begins
# One bit of the parameters that the optimizer has written at rank 1.
FLIP = "flip,result=changed,kernel=PointwiseOpScalarList,device=1,in=8"


def stores(folder: Path) -> list[dict[str, int]]:
    report = json.loads((folder / "report.json").read_text())
    return [channel["store"] for channel in report["channels"]]


def servers(job: Job) -> list[int]:
    return [entry["server_pid"] for entry in sorted(job.meta()["live"], key=lambda e: e["rank"])]


def wait_step(job: Job, step: int) -> None:
    wait_for(lambda: f"step={step} " in job.output(), 120, f"step {step}: {job.errors()}")


def test_each_restores_the_other(tmp_path: Path) -> None:
    faults = (
        f"server-kill,rank=1,step={LEARNED},call=60",
        f"server-kill,rank=0,step={LEARNED + 1},call=80",
    )
    check(tmp_path, faults, ranks=2, arguments=STEPS, **JIT)
    assert any(store["spilled_bytes"] > 1e6 for store in stores(tmp_path))
    assert not any(store["lost_blocks"] for store in stores(tmp_path))


@pytest.mark.parametrize("call", [150, 199])
def test_deaths_around_gate_and_cut(tmp_path: Path, call: int) -> None:
    fault = f"server-kill,rank=1,step={LEARNED},call={call}"
    check(tmp_path, (fault,), ranks=2, arguments=STEPS, **JIT)


def test_deaths_where_points_change(tmp_path: Path) -> None:
    """Each server in its turn, and so may be a replacement."""
    fault = f"server-kill,rank=0,step={LEARNED},call=60"
    env = {"PYFT_FAULT": "cut.before_publish:9", "PYFT_BACKGROUND_COPIES": "never", **JIT}
    check(tmp_path, (fault,), ranks=2, arguments=STEPS, deaths=[0, 1], **env)


@pytest.mark.long
def test_one_of_four_restores_the_others(tmp_path: Path) -> None:
    faults = tuple(f"server-kill,rank={rank},step={LEARNED},call={90 + rank}" for rank in (0, 1, 3))
    check(tmp_path, faults, ranks=4, arguments=STEPS, deaths=[0, 1, 3], **JIT)
    assert sum(store["spilled_bytes"] > 1e6 for store in stores(tmp_path)) >= 1


def test_a_rank_dies_while_no_agent_lives(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_step(job, 8)
        with job.without_agent():
            os.kill(servers(job)[1], signal.SIGKILL)

    check(
        tmp_path, (), ranks=2, arguments=("--steps", "14"), recovered=1, meanwhile=meanwhile, **JIT
    )


def test_who_is_alone_has_a_store(tmp_path: Path) -> None:
    check(tmp_path, (f"server-kill,step={LEARNED},rank=0,call=60",), arguments=STEPS, **JIT)


def test_points_of_one_rank_alone(tmp_path: Path) -> None:
    """It evaluates until its log is full; what the other one needs then is in its store."""
    env = {"PYFT_RING_MB": "1", "PYFT_ARENA_MB": "8", "PYFT_SHARE_SNAPSHOTS": "1", **JIT}
    arguments = ("--case", "lone_evaluation", "--steps", "9")
    faults = ("server-kill,rank=1,step=7,call=60", "server-kill,rank=0,step=13,call=100")
    check(tmp_path, faults, ranks=2, program=HOST_CASES, arguments=arguments, **env)


def test_a_bit_that_flips(tmp_path: Path) -> None:
    """Both replicas are replaced: what each has of the other is written down before."""
    arguments = (*STEPS, "--parallel", "ddp")
    line = ("--gpus", "soft:2", "--protect", "jit")
    got, found = run(tmp_path, line, command(TRAIN, 2, arguments), SOFTGPU_FAULT=FLIP, **EACH)
    assert tuple(got) == undisturbed(TRAIN, 2, arguments)
    assert [one["rank"] for one in found["corruptions"]] == [1]


def test_all_die_at_once(tmp_path: Path) -> None:
    """Nobody has it any more: an error that says so, and no wrong result."""

    def meanwhile(job: Job) -> None:
        wait_step(job, 9)
        for pid in servers(job):
            os.kill(pid, signal.SIGKILL)

    options = ("--gpus", "soft:2", "--protect", "jit")
    job = Job(tmp_path, command(TRAIN, 2, ("--steps", "200")), options=options, environment=EACH)
    try:
        meanwhile(job)
        assert job.wait(120) != 0
        assert "which the store of member" in job.errors()
        job.assert_nothing_left()
    finally:
        job.kill_everything()
