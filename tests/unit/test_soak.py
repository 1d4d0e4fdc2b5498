"""tests/soak: what is drawn, how runs are judged, what is left when it is killed, and its page."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
for part in ("tests/soak", "tests/sweep", "tests/nodes", "tools/gen"):
    sys.path.insert(0, str(ROOT / part))

import disturbances as draw  # noqa: E402
import endure  # noqa: E402
import places  # noqa: E402
import slopes  # noqa: E402
import soak_page  # noqa: E402
import soak_verdicts as judge  # noqa: E402
from growth import Sample  # noqa: E402
from job import having, wait_for  # noqa: E402
from ledger import Ledger, classes  # noqa: E402

from pyft.recovery import fault_table, inject, requests  # noqa: E402
from pyft.recovery.gpus import Gpus  # noqa: E402

STEPS = {0: [900, 130, 118, 125, 7], 1: [40, 130, 118, 125, 1]}
PLACE = places.Place(("server-kill,rank=0,step=1,call=2",))
DEATH = draw.Disturbance("stopping", ("server-kill",), PLACE)
SILENT = draw.Disturbance("silent", ("rot",), PLACE)
LIMIT = draw.Disturbance("limit", ("server killed",), PLACE, limit="addresses 1.01")
ENDS = draw.Disturbance("ends", ("client killed",), PLACE, may_end=True)
LINES = ["step=1 loss=0.5", "sha256=ab"]
WHY = "pyft: rank [1] has failed; it is not replaced: [x]"


def drawn(count: int, spares: int = 3) -> list[draw.Disturbance]:
    one = draw.Draw(STEPS, spares)
    return [one.draw(random.Random(f"7 {number}")) for number in range(count)]


def test_everything_is_drawn_and_a_number_gives_the_same_again() -> None:
    found = drawn(1500)
    assert found[:50] == drawn(50)
    assert {one.family for one in found} == set(draw.WEIGHTS)
    kinds = {kind for one in found for kind in one.kinds}
    assert set(fault_table.KINDS) <= kinds
    assert {"agent killed", "server killed", "client killed", "supervisor killed"} <= kinds
    assert {"spare returned", "few descriptors", "few addresses", "few memory"} <= kinds
    assert {one.load for one in found} == {"", *draw.LOADS}
    for one in found:
        requests.check([inject.parse(text) for text in one.place.faults], "snapshot")
        if point := one.place.settings.get("PYFT_FAULT"):
            inject.check_point(point)


def test_no_more_gpus_are_taken_than_there_are_spares() -> None:
    for one in drawn(500, spares=1):
        if one.family != "spare":
            assert sum(f.startswith(draw.TAKES_GPU) for f in one.place.faults) <= 1


def test_no_gpu_is_awaited_that_a_job_cannot_be_given() -> None:
    one = draw.Draw({rank: STEPS[0] for rank in range(8)}, spares=0)
    found = [one.draw(random.Random(f"7 {number}")) for number in range(300)]
    assert "spare" not in {given.family for given in found}
    assert not [f for given in found for f in given.place.faults if f.startswith(draw.TAKES_GPU)]


def seen(code: int | None, lines: list[str], errors: str = "", **recovery: Any) -> judge.Seen:
    return judge.Seen(code, "", lines, errors, recovery)


@pytest.mark.parametrize(
    ("given", "found", "outcome"),
    [
        (DEATH, seen(0, LINES), "equal"),
        (DEATH, seen(0, LINES[:1]), "wrong bits"),
        (DEATH, seen(0, [*LINES[:1], "sha256=ac"]), "wrong bits"),
        (SILENT, seen(0, [*LINES[:1], "sha256=ac"]), "changed"),
        (DEATH, seen(1, LINES[:1], WHY), "bad"),
        (ENDS, seen(1, LINES[:1], WHY), "ended"),
        (ENDS, seen(1, ["step=1 loss=0.6"], WHY), "wrong bits"),
        (ENDS, seen(1, [], ""), "ended"),
        (draw.Disturbance("limit", (), PLACE, may_end=True), seen(1, [], ""), "bad"),
        (DEATH, seen(79, LINES, not_injected=[{"fault": "x", "why": "so"}]), "missed"),
        (DEATH, seen(0, LINES, agent_restarts=1), "bad"),
        (DEATH, seen(0, LINES, given_up=1), "bad"),
        (DEATH, seen(0, LINES, WHY, given_up=1), "bad"),
        (LIMIT, seen(0, LINES, WHY, given_up=1), "ended"),
        (LIMIT, seen(0, LINES, given_up=1), "bad"),
        (LIMIT, seen(0, LINES[:1], WHY, given_up=1), "wrong bits"),
        (ENDS, seen(1, [], 'File "/x/pyft/agent/loop.py", line 3'), "bad"),
        (DEATH, seen(None, LINES), "bad"),
        (DEATH, judge.Seen(0, "processes end [7]", LINES, "", {}), "bad"),
    ],
)
def test_runs_are_judged(given: draw.Disturbance, found: judge.Seen, outcome: str) -> None:
    verdict = judge.judge(given, found, LINES)
    assert verdict.outcome == outcome
    assert verdict.reason or outcome in ("equal", "wrong bits", "changed")


def test_a_reason_has_no_numbers_so_that_equal_ones_are_counted_together() -> None:
    assert judge.reason_of(f"x\n{WHY}\n") == (
        "pyft: rank [...] has failed; it is not replaced: [...]"
    )
    assert judge.reason_of("all is well") == ""


def test_growth_is_that_of_all_lives_whatever_their_levels() -> None:
    def life(level: int, per_hour: int) -> list[Sample]:
        times = range(0, 120_000, 5_000)
        return [Sample(at, level + per_hour * at // slopes.HOUR_MS, 50, 7) for at in times]

    lives = {("agent", 1): life(9_000, 36_000), ("agent", 2): life(100, 36_000), ("agent", 3): []}
    objects = [(at, 5, 1_000) for at in range(0, 120_000, 5_000)]
    found = slopes.summary({k: v for k, v in lives.items() if v}, objects)
    assert found["agent"]["lives"] == 2
    assert found["agent"]["kilobytes"] == pytest.approx(36_000, rel=0.01)
    assert found["agent"]["shared"] == found["agent"]["descriptors"] == 0
    assert found["memory objects"]["objects"] == found["memory objects"]["shared"] == 0


def test_the_second_half_of_a_long_job_tells_what_fills_up_once_from_what_leaks() -> None:
    times = range(0, slopes.HOUR_MS, 60_000)
    full = slopes.HOUR_MS // 3
    filling = [Sample(at, 1_000, min(at, full), 7) for at in times]
    leaking = [Sample(at, at * 60 // slopes.HOUR_MS, 50, 7) for at in times]
    objects = [(at, 5, min(at, full)) for at in times]
    found = slopes.summary({("server", 1): filling, ("agent", 2): leaking}, objects)
    assert found["server"]["shared"] > 0
    assert found["memory objects"]["shared"] > 0
    assert found["server, second half"]["shared"] == 0
    assert found["memory objects, second half"]["shared"] == 0
    assert found["agent, second half"]["kilobytes"] == pytest.approx(60, rel=0.1)
    short = slopes.summary({("server", 1): filling[:20]}, objects[:20])
    assert list(short) == ["server", "memory objects"]


def test_classes_count_what_was_given_up_together() -> None:
    faults = [{"fault": "hang", "outcome": f"given up: {why}"} for why in "ab"]
    recovery: Mapping = {"faults": [*faults, {"fault": "hang", "outcome": "recovered"}]}
    assert classes(recovery) == {"hang": {"given up": 2, "recovered": 1}}


def test_a_soak_that_is_killed_leaves_nothing_but_its_ledger(tmp_path: Path) -> None:
    word = f"SOAK_MARK={uuid.uuid4().hex}"
    work = tmp_path / "work"
    program = f"""
import os, subprocess, sys
os.environ.update([{word!r}.split("=")])
guard = subprocess.Popen([sys.executable, {str(ROOT / "tests/soak/guard.py")!r}, {word!r},
                          {str(work)!r}, {str(tmp_path / "group")!r}],
                         stdin=subprocess.PIPE, start_new_session=True)
os.makedirs({str(work)!r})
subprocess.Popen(["sleep", "600"], start_new_session=True)
print(guard.pid, flush=True)
sys.stdin.read()
"""
    soak = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert soak.stdout is not None
    guard = int(soak.stdout.readline())
    # The one that was started last may not show its environment yet.
    wait_for(lambda: len(having(word)) == 2, 15, "both are there")
    soak.kill()
    soak.wait()
    wait_for(lambda: not having(word) and not work.exists(), 15, f"{guard} clears")


def test_a_ledger_is_whole_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    one = Ledger(path)
    one.begin("7", memory_group=True, images=False)
    one.add(ROW)
    kept = json.loads(path.read_text())["stretches"]
    assert [(s["seed"], s["whole"], len(s["runs"])) for s in kept] == [("7", False, 1)]
    text = soak_page.page(kept)
    assert "no: it was ended before" in text
    again = Ledger(path)
    again.begin("8")
    again.end()
    kept = json.loads(path.read_text())["stretches"]
    assert [(s["seed"], s["whole"]) for s in kept] == [("7", False), ("8", True)]


ROW = {
    "number": 0,
    "seconds": 3.0,
    "load": 1.0,
    "case": "gpt",
    "family": "ends",
    "kinds": ["client killed", "client killed"],
    "what": "client 0@+1.00 load=disk",
    "outcome": "ended",
    "reason": "pyft: why",
    "classes": {"hang": {"recovered": 2}},
}


class FewGpus:
    """A long job as far as orders go: its GPUs, and which rank has which."""

    def __init__(self) -> None:
        self.gpus, self.taken = Gpus(endure.RANKS_OF_IT, endure.SPARES), 0

    def meta(self) -> dict[str, Any]:
        return {"live": [{"rank": rank, "gpu": gpu} for rank, gpu in self.gpus.behind.items()]}

    def give(self, meta: Any, order: str, **values: Any) -> None:
        if order == "spare":
            assert not self.gpus.usable(values["gpu"]), "it is in use already"
            self.gpus.add(values["gpu"])
        elif order == "drain" or values.get("fault") in endure.TAKES_GPU:
            rank = next(r for r, gpu in self.gpus.behind.items() if gpu == values.get("gpu", gpu))
            gpu = self.gpus.behind[values.get("rank", rank)]
            self.gpus.lose(gpu, order)
            self.taken += 1
            assert self.gpus.place(values.get("rank", rank), True, set()) is not None


def test_a_long_job_always_gets_a_gpu_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FewGpus()
    monkeypatch.setattr(endure.orders, "give", job.give)
    long = endure.Endurance(tmp_path, 60, "1", lambda seen: None)
    for number in range(100):
        long._order(job, endure.TAKES_GPU[number % len(endure.TAKES_GPU)])  # type: ignore[arg-type]
    assert job.taken == long.seen()["given"]["spare returned"] == 100


def test_the_page_counts() -> None:
    rows = [ROW, ROW | {"kinds": ["hang"], "outcome": "equal", "reason": "", "what": "x"}]
    stretch = {
        "seed": "1",
        "began": "b",
        "seconds": 3700,
        "whole": True,
        "cores": 2,
        "loads": [3.0],
    }
    text = soak_page.page([stretch | {"runs": rows, "endurance": {}}])
    assert "| `client killed` | 1 |  | 1 |" in text
    assert "| `hang` | 4 | 4 |" in text
    assert "**1:01 hours** in 1 stretches, 2 runs" in text
    assert "| ended | ends | `pyft: why` | 1 |" in text


def test_the_page_of_the_docs_is_made_from_its_data() -> None:
    stretches = json.loads(soak_page.DATA.read_text())["stretches"]
    assert soak_page.PAGE.read_text() == soak_page.page(stretches) + soak_page.FOUND
