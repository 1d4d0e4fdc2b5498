"""Replicas that share snapshots: each kept block is in one store only, and comes back to all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recovery_run import check

HOST_CASES = str(Path(__file__).parent / "programs" / "host_cases.py")
STEPS = ("--steps", "9")
EACH = {"PYFT_CUT_EVERY": "1"}


def stores(folder: Path) -> list[dict[str, int]]:
    report = json.loads((folder / "report.json").read_text())
    return [channel["store"] for channel in report["channels"]]


@pytest.mark.parametrize("late", ["never", "always"])
def test_both_replicas_die(tmp_path: Path, late: str) -> None:
    faults = ("server-kill,rank=1,step=4,call=60", "server-kill,rank=0,step=5,call=80")
    check(tmp_path, faults, ranks=2, arguments=STEPS, PYFT_BACKGROUND_COPIES=late, **EACH)
    one, other = stores(tmp_path)
    assert one["elsewhere_bytes"] > 1e6
    assert other["elsewhere_bytes"] > 1e6
    assert one["live_bytes"] == other["live_bytes"]


@pytest.mark.long
def test_all_of_four_die_in_one_step(tmp_path: Path) -> None:
    faults = tuple(f"server-kill,rank={rank},step=4,call={90 + rank}" for rank in range(4))
    check(tmp_path, faults, ranks=4, arguments=("--steps", "8"), deaths=range(4), **EACH)
    live = stores(tmp_path)[0]["live_bytes"]
    kept = [store["live_bytes"] - store["elsewhere_bytes"] for store in stores(tmp_path)]
    assert sum(kept) < 1.5 * live, "most of it once"
    assert max(kept) < 0.75 * live, "and not all of it by one"


@pytest.mark.parametrize(
    "point",
    ["store.before_publish:4", "store.after_publish:4", "cut.before_publish:5", "cut.copying:30"],
)
def test_deaths_where_points_change(tmp_path: Path, point: str) -> None:
    """One replica may have the new point, and the other one not yet."""
    env = {"PYFT_FAULT": point, "PYFT_BACKGROUND_COPIES": "always", **EACH}
    check(tmp_path, (), ranks=2, arguments=STEPS, recovered=2, **env)


def test_points_of_one_rank_alone(tmp_path: Path) -> None:
    """It evaluates until its log is full, and has lent what the other one needs then."""
    env = {"PYFT_RING_MB": "1", "PYFT_ARENA_MB": "8", "PYFT_SHARE_SNAPSHOTS": "1", **EACH}
    arguments = ("--case", "lone_evaluation", "--steps", "6")
    faults = ("server-kill,rank=1,step=4,call=60", "server-kill,rank=0,step=7,call=100")
    check(tmp_path, faults, ranks=2, program=HOST_CASES, arguments=arguments, **env)
    one = json.loads((tmp_path / "report.json").read_text())["channels"]
    assert {channel["rank"]: channel["forced_cuts"] > 2 for channel in one} == {0: True, 1: False}


def test_without_sharing(tmp_path: Path) -> None:
    fault = "server-kill,rank=1,step=4,call=60"
    env = {"PYFT_SHARE_SNAPSHOTS": "0", **EACH}
    check(tmp_path, (fault,), ranks=2, arguments=STEPS, **env)
    assert [store["elsewhere_bytes"] for store in stores(tmp_path)] == [0, 0]
