"""Groups of NCCL's: what they make, and what is ended in them before it is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from job import Job
from recovery_run import command, run

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.parametrize("fault", [(), ("--inject", "server-kill,rank=0,call=40")])
def test_one_thread_makes_and_ends_the_ranks_of_two_devices(
    tmp_path: Path, fault: tuple[str, ...]
) -> None:
    job = Job(
        tmp_path,
        [sys.executable, str(PROGRAMS / "grouped.py")],
        options=("--gpus", "soft:2", *fault),
    )
    try:
        assert job.wait(120) == 0, job.errors()
        job.assert_nothing_left()
        assert job.output().splitlines() == [
            "world [3000.0, 3000.0]",
            "half of each [1500.0, 1500.0]",
            "the other way round 1 [3000.0, 3000.0]",
            "world [3000.0, 3000.0]",
        ]
        assert ("goes on after" in job.errors()) == bool(fault), job.errors()
    finally:
        job.kill_everything()


def test_a_scale_that_is_ended_in_its_group(tmp_path: Path) -> None:
    argv = command(str(PROGRAMS / "coalesced_scales.py"), 2, ())
    lines, report = run(tmp_path, ("--gpus", "soft:2"), argv)
    assert report["faults"] == []
    sums, wanted = [[r + n + 1.0 for n in range(3)] for r in range(2)], []
    for step in range(4):
        sums = [[sum(column) * (0.5 + step) for column in zip(*sums, strict=True)]] * 2
        wanted += [f"rank={r} loss={[1000 * value for value in sums[r]]}" for r in range(2)]
    assert lines == sorted(wanted)
