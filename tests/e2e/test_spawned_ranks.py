"""Ranks of processes that no launcher has numbered."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from recovery_run import run

SPAWNED = str(Path(__file__).parent / "programs" / "spawned.py")


def train(folder: Path, *options: str, plain: bool = False) -> tuple[list[str], dict]:
    argv = [sys.executable, SPAWNED, str(folder / "rendezvous"), *(["plain"] if plain else [])]
    return run(folder, ("--gpus", "soft:2", *options), argv)


@cache
def undisturbed() -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        got, _ = train(Path(folder), "--protect", "none")
    assert len(got) == 2 * 5
    return tuple(got)


@pytest.mark.parametrize(
    ("fault", "rank", "plain"),
    [
        ("server-kill,rank=1,step=2,call=5", 1, False),
        ("sticky,rank=0,step=2", 0, False),
        ("server-kill,rank=1,step=2,call=5", 1, True),
    ],
)
def test_a_fault_hits_the_rank_that_is_meant(
    tmp_path: Path, fault: str, rank: int, plain: bool
) -> None:
    got, report = train(tmp_path, "--inject", fault, plain=plain)
    assert tuple(got) == undisturbed()
    device = rank if plain else 1 - rank
    found = [(f["rank"], f["device"], f["outcome"]) for f in report["faults"]]
    assert found == [(rank, device, "recovered")], report
    assert report["verdict"] == "exact"
