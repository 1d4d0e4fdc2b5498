"""tests/sweep: places of faults lie within the program, and one that has not come is noticed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import places
import run

from pyft.recovery import requests
from pyft.recovery.inject import parse

STEPS = {0: [900, 130, 118, 125, 7], 1: [40, 130, 118, 125, 1]}


@pytest.mark.parametrize("kinds", [("server-kill",), ("server-kill", "sticky", "gpu-lost")])
def test_random_places_are_within_the_program(kinds: tuple[str, ...]) -> None:
    dice = places.Dice(STEPS, kinds, 3, random.Random("1"))
    drawn = [dice.place() for _ in range(2000)]
    assert {len(place.faults) for place in drawn} == {0, 1, 2, 3}
    for place in drawn:
        faults = [parse(text) for text in place.faults]
        requests.check(faults, "capture")
        first = {fault.rank: fault for fault in faults if fault.server == 1}
        for fault in faults:
            steps = STEPS[fault.rank]
            if fault.kind != places.EXACT:
                assert fault.step <= 1
                assert fault.call <= places.LAUNCHES
            elif fault.server == 1:
                assert 1 <= fault.call <= steps[fault.step]
            else:
                begins = steps[: first[fault.rank].step + 1]
                assert fault.step == 0
                assert 1 <= fault.call <= min(begins), "whichever step its replay begins with"


def test_a_step_without_entries_is_not_drawn() -> None:
    dice = places.Dice({0: [50, 60, 0]}, ("server-kill",), 1, random.Random("2"))
    for _ in range(200):
        assert all(parse(text).step < 2 for text in dice.place().faults)


def test_points_and_moments_that_did_not_come_are_tried_sooner() -> None:
    place = places.Place((), {"PYFT_FAULT": "cut.copying:40", "PYFT_CUT_EVERY": "1"})
    tried = []
    while place:
        tried.append(place.settings["PYFT_FAULT"])
        place = place.sooner()
    assert tried == [f"cut.copying:{n}" for n in (40, 20, 10, 5, 2, 1)]
    killed = places.Place((), kills=((1.0, "agent"), (0.5, "server 0")))
    assert killed.sooner() == places.Place((), kills=((0.5, "agent"), (0.25, "server 0")))
    assert places.Place(("server-kill,rank=0,step=1",)).sooner() is None


def test_a_run_without_a_fault_has_shown_nothing() -> None:
    assert run.missing({"faults": [], "not_injected": [], "agent_restarts": 0})
    assert not run.missing({"faults": [{}], "not_injected": [], "agent_restarts": 0})
    assert not run.missing({"faults": [], "not_injected": [], "agent_restarts": 1})
    missed = [{"fault": "ecc,rank=7", "why": "so"}]
    found = run.missing({"faults": [{}], "not_injected": missed, "agent_restarts": 0})
    assert found == "[ecc,rank=7] did not happen: so"
