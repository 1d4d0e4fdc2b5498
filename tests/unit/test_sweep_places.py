"""tests/sweep: places of faults lie within the program, and one that has not come is noticed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import case_runs
import places
import run

from pyft.agent.job import gpus
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
        requests.check(faults, "snapshot")
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


def test_an_entry_that_did_not_come_is_tried_nearer_to_its_cut() -> None:
    fault = "server-kill,rank=0,step=1,call={}"
    place = first = places.Place((fault.format(5), "sticky,rank=1,step=0,call=3"))
    tried = []
    while place := place.sooner():
        assert (place.faults[1], place.replaces) == (first.faults[1], str(first))
        tried.append(place.faults[0])
    assert tried == [fault.format(2), fault.format(1)]


@pytest.mark.parametrize("moments", [0, 3])
def test_what_does_not_come_is_replaced_by_a_death_that_comes(moments: int) -> None:
    dice = places.Dice(STEPS, ("server-kill",), 2, random.Random("3"))
    drawn = [dice.moments(moments) if moments else dice.place() for _ in range(200)]
    unsure = [place for place in drawn if not place.faults]
    assert unsure
    for place in unsure:
        last, following = place, place.sooner()
        while following and not following.faults:
            last, following = following, following.sooner()
        assert following
        (fault,) = (parse(text) for text in following.faults)
        assert fault.kind == places.EXACT
        assert 1 <= fault.call <= STEPS[fault.rank][fault.step]
        assert "PYFT_FAULT" not in following.settings
        assert (following.kills, following.replaces) == ((), str(last))


def test_a_replaced_place_says_so_in_its_line_which_can_be_repeated() -> None:
    certain = places.Place(("server-kill,rank=0,step=1,call=2",), {"PYFT_CUT_EVERY": "2"})
    point = {"PYFT_FAULT": "cut.copying:1", "PYFT_CUT_EVERY": "2"}
    place = places.Place((), point, instead=certain).sooner()
    assert place is not None
    assert case_runs.repeated(str(place)) == certain
    said = run.verdict(place, case_runs.Outcome("", "", 1, 1.0, Path()))
    assert said.startswith("equal (instead of [PYFT_FAULT=cut.copying:1 PYFT_CUT_EVERY=2]")


def test_places_of_a_total_are_shared_out() -> None:
    counts = places.shared_out(100, map(str, range(40)))
    assert sum(counts.values()) == 100
    assert list(counts.values()) == [3] * 20 + [2] * 20
    assert places.shared_out(1, ["a", "b"]) == {"a": 1, "b": 0}


@pytest.mark.parametrize("moments", [0, 3])
def test_a_seed_gives_the_same_places_whatever_became_of_those_before(moments: int) -> None:
    def drawn(count: int, steps: dict[int, list[int]]) -> list[places.Place]:
        line = ["--seed", "7", "--per-run", "3", "--moments", str(moments)]
        sweep = case_runs.Sweep("gpt", run.CASES["gpt"], Path(), run.parse(line))
        sweep.entries = steps
        return list(sweep.places(count))

    assert drawn(40, STEPS) == drawn(60, STEPS)[:40]
    assert drawn(40, dict(reversed(STEPS.items()))) == drawn(40, STEPS), "who comes first"
    one_more = {rank: [steps[0] + 1, *steps[1:]] for rank, steps in STEPS.items()}
    near = drawn(200, one_more)
    same = sum(one == other for one, other in zip(drawn(200, STEPS), near, strict=True))
    assert same > 150, "a step with one more entry changes few of them"


def test_a_run_without_a_fault_has_shown_nothing() -> None:
    assert case_runs.missing({"faults": [], "not_injected": [], "agent_restarts": 0})
    assert not case_runs.missing({"faults": [{}], "not_injected": [], "agent_restarts": 0})
    assert not case_runs.missing({"faults": [], "not_injected": [], "agent_restarts": 1})
    missed = [{"fault": "ecc,rank=7", "why": "so"}]
    found = case_runs.missing({"faults": [{}], "not_injected": missed, "agent_restarts": 0})
    assert found == "[ecc,rank=7] did not happen: so"


def test_an_agent_that_ends_unasked_is_a_complaint() -> None:
    killed = places.Place((), kills=((1.0, "agent"),))
    assert not case_runs.unasked(killed, {"agent_restarts": 1})
    assert case_runs.unasked(killed, {"agent_restarts": 2})
    assert case_runs.unasked(places.Place(()), {"agent_restarts": 1})


@pytest.mark.parametrize("name", run.CASES)
def test_a_case_has_only_the_spares_that_a_node_has_room_for(name: str, tmp_path: Path) -> None:
    case, args = run.CASES[name], run.parse(["--kinds", "server-kill,gpu-lost"])
    sweep = case_runs.Sweep(name, case, tmp_path, args)
    gpus.choose(f"soft:{case.ranks}", sweep.spares)  # raises, if it has no room
    assert sweep.spares == (1 if case.ranks < gpus.MAX_DEVICES else 0)
    assert ("gpu-lost" in sweep.kinds) == bool(sweep.spares)


def test_what_a_run_said_last_is_what_is_told() -> None:
    assert case_runs.last_line("first\npyft: why\n\n") == "pyft: why"
    assert case_runs.last_line("") == ""
