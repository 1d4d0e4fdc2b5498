"""An engine whose aborts leave partial results: after a fault of one rank all ranks replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from recovery_run import STEPS, check

DDP = (*STEPS, "--parallel", "ddp")
TOGETHER = {"PYFT_REPLAY": "all"}


def test_a_server_dies_inside_a_collective(tmp_path: Path) -> None:
    """The other one stands in it, with sums of some chunks only, until it is ended as well."""
    faults = {"FLEXCCL_FAULT": "kill:40,rank=1"}
    report = check(tmp_path, (), ranks=2, arguments=DDP, recovered=2, **TOGETHER, **faults)
    assert {fault["fault"] for fault in report["faults"]} == {"server-killed", "peer-failed"}
    for fault in report["faults"]:
        assert fault["action"].endswith("all [2] ranks replay")
        assert fault["epoch_to"] > fault["epoch_from"]


@pytest.mark.long
def test_four_ranks_replay_twice(tmp_path: Path) -> None:
    """Once in the backward pass, and again while they replay that."""
    first, again = "server-kill,rank=2,step=2,call=90", "server-kill,rank=0,step=0,call=40,server=2"
    report = check(
        tmp_path,
        (first, again),
        ranks=4,
        arguments=DDP,
        deaths=[2, 0],
        **TOGETHER,
    )
    assert [fault["rank"] for fault in report["faults"] if fault["fault"] == "server-killed"] == [
        2,
        0,
    ]
    assert len(report["faults"]) == 8
    assert report["given_up"] == 0


@pytest.mark.parametrize(("rank", "place"), [(0, 4), (1, 6)])
def test_a_server_dies_while_a_communicator_is_made(tmp_path: Path, rank: int, place: int) -> None:
    """The other one waits for it, knows it, or has the communicator: a new one is made by both."""
    fault = f"kill:{place},rank={rank},on=init"
    faults = {"FLEXCCL_FAULT": fault}
    report = check(tmp_path, (), ranks=2, arguments=DDP, deaths=[rank], **TOGETHER, **faults)
    assert "server-killed" in {fault["fault"] for fault in report["faults"]}


def test_snapshots_are_as_frequent_as_the_log_needs(tmp_path: Path) -> None:
    """Half a ring holds ten steps: after 32 the log before the last snapshot would be gone."""
    fault = "server-kill,rank=1,step=18,call=40"
    arguments = ("--steps", "22", "--parallel", "ddp")
    small = {"PYFT_RING_MB": "1", "PYFT_CUT_EVERY": "32"}
    check(tmp_path, (fault,), ranks=2, arguments=arguments, recovered=2, **TOGETHER, **small)


def test_a_server_dies_while_it_copies_behind_a_cut(tmp_path: Path) -> None:
    """No line is decided before all have copied: both begin at the one before, and end with one."""
    settings = {"PYFT_CUT_EVERY": "1", "PYFT_BACKGROUND_COPIES": "always"}
    point = {"PYFT_FAULT": "cut.copying:3"}
    report = check(
        tmp_path,
        (),
        ranks=2,
        arguments=DDP,
        either=([0], [1], [0, 1]),
        **TOGETHER,
        **settings,
        **point,
    )
    assert "server-killed" in {fault["fault"] for fault in report["faults"]}
