"""tests/sweep --rehearse: small trainings get the ratios of large ones, and what is bad is seen."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import rehearse
import run
from places import Place

PAGE = Path(__file__).resolve().parents[2] / "docs" / "research" / "rehearsal.md"
SMALL = rehearse.Small(step_s=1.5, copied_mb=9.0, ring_kb=100.0)


@pytest.mark.parametrize("name", sorted(rehearse.LARGE))
def test_the_settings_give_the_ratios_of_the_large_job(name: str) -> None:
    large = rehearse.LARGE[name]
    chosen = rehearse.settings(large, SMALL)
    rate, ring = float(chosen["PYFT_COPY_MB_S"]), float(chosen["PYFT_RING_KB"])
    assert SMALL.copied_mb / rate / SMALL.step_s == pytest.approx(large.copy_to_step, rel=1e-2)
    assert ring / SMALL.ring_kb == pytest.approx(large.ring_steps, rel=0.05)
    assert ring % rehearse.PAGE_KB == 0
    touch_s = rehearse.COPY_GB_S / rehearse.TOUCH_GB_S * SMALL.copied_mb / rate
    hang = float(chosen["PYFT_HANG_S"])
    assert hang == rehearse.LEAST_HANG_S or touch_s / hang == pytest.approx(
        large.touch_to_hang, rel=0.05
    )
    assert chosen["PYFT_REPLAY"] == "all"


@pytest.mark.parametrize("name", sorted(rehearse.LARGE))
def test_the_page_has_the_ratios(name: str) -> None:
    large = rehearse.LARGE[name]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(), re.M)
    (cells,) = ([float(c) for c in row.split("|")] for first, row in rows if first == name)
    want = [large.step_s, large.live_gb, large.ring_mb]
    want += [large.copy_to_step, large.ring_steps, large.touch_to_hang]
    assert cells == [pytest.approx(value, abs=0.006) for value in want]


def fault(rank: int, name: str = "server-killed") -> dict:
    return {"rank": rank, "fault": name}


def test_more_than_two_replays_of_a_rank_for_a_fault_are_too_many() -> None:
    place = Place(("server-kill,rank=0,step=1,call=2",))
    twice = [fault(rank, name) for name in ("server-killed", "peer-failed") for rank in (0, 1)]
    assert not rehearse.too_often(place, {"faults": twice})
    said = rehearse.too_often(place, {"faults": [*twice, fault(1, "stuck")]})
    assert said.startswith("a rank replays [3] times, at most [2]")
    assert "'stuck': 1" in said
    point = Place((), {"PYFT_FAULT": "cut.copying:1"}, kills=((1.0, "agent"), (1.0, "server 1")))
    assert rehearse.asked(point) == 2


def test_losses_that_are_far_are_seen() -> None:
    wanted = ["rank=0 step=1 loss=0.5", "rank=0 step=2 loss=0.25", "params_sha256=ab"]
    assert rehearse.near(["rank=0 step=1 loss=0.5", "rank=0 step=2 loss=0.2501", "x"], wanted)
    assert not rehearse.near(["rank=0 step=1 loss=0.5", "rank=0 step=2 loss=0.3", "x"], wanted)
    assert not rehearse.near(["rank=0 step=1 loss=nan", "rank=0 step=2 loss=0.25"], wanted)


def test_the_summary_counts_what_the_criterion_is() -> None:
    recovery = {"faults": [fault(0), fault(1, "peer-failed")], "given_up": 0}
    recovery |= {"verdict": "equivalent", "protected_share": 0.995}
    text = rehearse.summary([(Place(("x",)), recovery), (Place(("x",)), {})])
    assert text.startswith("1 faults asked for, 0 ranks given up, at most 1.0 replays a fault")
    assert "'equivalent': 1" in text
    assert "protected 99.5%" in text


def test_a_rehearsal_has_noise_and_cases_of_its_own() -> None:
    args = run.parse(["--rehearse", "70b"])
    assert (args.noise, args.steps, args.case) == ("7", 8, list(run.REHEARSED))
    assert run.parse([]).steps == 4
