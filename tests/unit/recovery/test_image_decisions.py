"""When the next image of a job is due, and what comes too early, too late or not at all."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_images import held, made, running  # noqa: E402

from pyft.recovery import images  # noqa: E402
from pyft.recovery.images import (  # noqa: E402
    AHEAD,
    ClientState,
    Copy,
    Drop,
    Dump,
    Hold,
    ImagePlan,
    Phase,
    Release,
)

NOW = 1000.0


def in_phase(phase: Phase, now: float = NOW) -> ImagePlan:
    """Return a plan that has just come to a phase, with its first image."""
    plan = ImagePlan()
    if phase is not Phase.NONE:
        assert plan.look(now, running()) == [Hold(7)]
    if phase in (Phase.DUMP, Phase.COPY):
        assert plan.look(now, held(7)) == [Dump(1, 7)]
    if phase is Phase.COPY:
        assert plan.dumped(now, held(7)) == [Copy(1, 7)]
    return plan


def apart() -> list[ClientState]:
    """Return clients one of which is a step further."""
    return [running(5)[0], running(6)[1]]


# ---- when one is due -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"works": False}, {"steps": 0}, {"line": 0}], ids=["recovers", "no step", "no line"]
)
def test_all_have_to_work_and_to_have_a_line(change: dict[str, int]) -> None:
    for clients in ([], [replace(running()[0], **change), running()[1]]):
        assert ImagePlan().look(NOW, clients) == []
    assert ImagePlan().look(NOW, running()) == [Hold(7)]


def test_the_furthest_client_says_where_all_stop() -> None:
    assert ImagePlan().look(NOW, apart()) == [Hold(6 + AHEAD)]
    plan = ImagePlan(every=8)
    assert plan.look(NOW, running(5)) == []
    assert plan.look(NOW, apart()) == [Hold(8)]


def test_the_furthest_client_gives_the_pace() -> None:
    plan = ImagePlan(every=20)
    for now in range(4):  # the other one makes no step at all
        assert plan.look(NOW + now, [running(5)[0], running(5 + now)[1]]) == []
    assert plan.look(NOW + 4, [running(5)[0], running(18)[1]]) == [Hold(20)]
    assert plan.deadline() == pytest.approx(images.hold_s(AHEAD, 3 / 12))


def test_a_hold_lasts_twice_as_long_as_the_steps_to_come() -> None:
    assert images.hold_s(3, 5.0) == images.HOLD_S + 2 * 3 * 5.0
    assert images.hold_s(3, 0.0) == images.HOLD_S + 2 * 3 * images.UNKNOWN_STEP_S


def test_the_pause_doubles_with_each_image_that_is_passed_over() -> None:
    plan, now = ImagePlan(), NOW
    for count in range(1, 12):
        assert plan.look(now, running()) == [Hold(7)]
        plan.interrupted(now, "why")
        pause = min(images.MOST_PAUSE_S, images.LEAST_S * 2**count)
        assert plan.look(now + pause - 0.01, running()) == []
        now += pause
    assert pause == images.MOST_PAUSE_S
    made(plan, now=now)
    now += images.LEAST_S
    assert plan.look(now, running()) == [Hold(7)], "it has cost nothing"
    plan.interrupted(now, "why")
    assert plan.look(now + 2 * images.LEAST_S, running()) == [Hold(7)]


def test_the_pause_after_an_image_is_as_long_as_its_cost_allows() -> None:
    plan = in_phase(Phase.COPY)
    plan.copied(NOW + 0.5)
    due = NOW + 0.5 + 0.5 * images.SHARE
    assert plan.look(due - 0.01, running()) == []
    assert plan.look(due, running()) == [Hold(7)]


@pytest.mark.parametrize("mttf_s", [60.0, 3600.0, 1e6])
def test_no_other_interval_costs_less(mttf_s: float) -> None:
    """Of each second so much goes to images, and so much is done again after losses."""
    cost_s = 0.4
    lost = lambda every: cost_s / every + every / (2 * mttf_s)  # noqa: E731
    best = images.between_s(cost_s, mttf_s)
    assert all(lost(best) < lost(best * other) for other in (0.5, 0.9, 1.1, 2.0))


def test_images_that_cost_nothing_are_not_made_all_the_time() -> None:
    assert images.between_s(0.0, 3600.0) == images.between_s(0.0) == images.LEAST_S


def test_one_that_is_passed_over_is_made_up_for_soon() -> None:
    """Not only when as many steps as asked for have passed once more."""
    plan = ImagePlan(every=10)
    assert plan.look(NOW, running(8)) == [Hold(10)]
    plan.interrupted(NOW, "why")
    assert plan.look(NOW + 1, running(9)) == []
    assert plan.look(NOW + 2, running(9)) == [Hold(11)]


def test_the_next_agent_counts_steps_from_the_image_that_counts() -> None:
    note = made(ImagePlan(), steps=18).note()
    after = ImagePlan(every=10)
    assert after.adopt(NOW, note) == [Release()], "nothing is unfinished"
    assert after.look(NOW, running(27)) == []
    assert after.look(NOW, running(28)) == [Hold(30)]


def test_before_the_first_image_the_next_agent_hears_of_none() -> None:
    none = {"number": 0, "current": 0, "current_step": 0, "restores": 0}
    assert ImagePlan().note() == none


def test_the_next_agent_does_not_begin_at_once() -> None:
    after = ImagePlan()
    after.adopt(NOW, made(ImagePlan()).note())
    assert after.look(NOW + images.LEAST_S - 0.01, running()) == []
    assert after.look(NOW + images.LEAST_S, running()) == [Hold(7)]


def test_the_next_agent_of_a_job_without_an_image_begins_with_the_first() -> None:
    after = ImagePlan()
    assert after.adopt(NOW, ImagePlan().note()) == [Release()]
    assert after.lost() == (0, "there is no image yet")
    assert made(after, now=NOW + 10).current == 1


# ---- what comes at another time ------------------------------------------------------------------


@pytest.mark.parametrize("phase", list(Phase))
def test_an_answer_to_what_is_not_under_way_is_none(phase: Phase) -> None:
    if phase is not Phase.DUMP:
        assert in_phase(phase).dumped(NOW, held(7)) == []
    if phase is not Phase.COPY:
        assert in_phase(phase).copied(NOW) == []
    if phase is Phase.NONE:
        assert in_phase(phase).interrupted(NOW, "why") == []


@pytest.mark.parametrize("phase", [Phase.HOLD, Phase.DUMP, Phase.COPY])
def test_what_has_begun_is_removed_when_something_happens(phase: Phase) -> None:
    begun = [Drop(1)] if phase is not Phase.HOLD else []
    plan = in_phase(phase)
    assert plan.interrupted(NOW, "why") == [Release("why"), *begun]
    assert (plan.phase, plan.step, plan.passed) == (Phase.NONE, 0, 1)
    assert plan.lost() == (0, "there is no image yet")


def test_memory_that_cannot_be_copied_makes_no_image() -> None:
    plan = in_phase(Phase.COPY)
    assert plan.copied(NOW, "no room") == [Release("no room"), Drop(1)]
    assert plan.lost() == (0, "there is no image yet")


@pytest.mark.parametrize("phase", [Phase.DUMP, Phase.COPY])
def test_nobody_is_stopped_for_longer_than_said(phase: Phase) -> None:
    plan = in_phase(phase)
    assert plan.deadline() == images.TAKE_S
    assert plan.look(NOW + images.TAKE_S, held(7)) == []
    release, drop = plan.look(NOW + images.TAKE_S + 0.01, held(7))
    assert (release, drop) == (Release("it has taken more than [60] s"), Drop(1))


@pytest.mark.parametrize("late", [0.0, 0.01])
def test_a_dump_that_ends_too_late_makes_no_image(late: float) -> None:
    plan = in_phase(Phase.DUMP)
    done = plan.dumped(NOW + images.TAKE_S + late, held(7))
    passed = [Release("it has taken more than [60] s"), Drop(1)]
    assert done == (passed if late else [Copy(1, 7)])


def test_a_job_whose_clients_have_all_ended_has_no_image() -> None:
    plan = in_phase(Phase.HOLD)
    assert plan.look(NOW, []) == []
    (release,) = plan.look(NOW + plan.deadline() + 0.01, [])
    assert release.why.endswith("s no client is left")
    plan = in_phase(Phase.DUMP)
    assert plan.dumped(NOW, []) == [Release("after the dump, no client is left"), Drop(1)]


def test_a_dump_that_fails_says_why() -> None:
    plan = in_phase(Phase.DUMP)
    assert plan.dumped(NOW, running(), "CRIU") == [Release("CRIU"), Drop(1)]


def test_one_rank_that_is_recovered_ends_the_hold_of_all() -> None:
    plan = in_phase(Phase.HOLD)
    one = [replace(running()[0], works=False), running()[1]]
    assert plan.look(NOW, one) == [Release("a rank is being recovered")]
