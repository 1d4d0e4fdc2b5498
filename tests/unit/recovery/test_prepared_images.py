"""A pre-dump comes before the hold, and whatever becomes of it, the hold follows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_images import held, running  # noqa: E402

from pyft.recovery import images  # noqa: E402
from pyft.recovery.images import Drop, Dump, Hold, ImagePlan, Keep, Phase, Prepare, Release  # noqa: E402

LATE = images.PREPARE_S + images.MOST_TAKE_S + 1000.0


def preparing() -> ImagePlan:
    """Return a plan whose first image is due, where there can be pre-dumps."""
    plan = ImagePlan()
    plan.prepares = True
    assert plan.look(0.0, running()) == [Prepare()]
    return plan


def test_none_is_held_before_the_pre_dump_has_ended() -> None:
    plan = preparing()
    assert plan.look(1.0, running(6)) == plan.look(LATE, running(400)) == []
    assert plan.prepared(2.0, running(8)) == [Hold(10)]
    assert plan.look(2.0, held(10)) == [Dump(1, 10)]


def test_where_there_can_be_none_the_hold_is_at_once() -> None:
    assert ImagePlan().look(0.0, running()) == [Hold(7)]


def test_a_rank_that_is_recovered_meanwhile_is_not_held() -> None:
    plan = preparing()
    assert plan.prepared(1.0, [replace(running()[0], works=False), running()[1]]) == [
        Release("a rank is being recovered")
    ]
    assert plan.look(images.LEAST_S + 0.9, running()) == []
    assert plan.look(1.0 + 2.0 * images.LEAST_S, running()) == [Prepare()]


def test_a_pre_dump_that_nothing_waits_for_has_no_effect() -> None:
    plan = preparing()
    assert plan.interrupted(1.0, "why") == [Release("why")]
    assert plan.prepared(1.0, running()) == []
    assert plan.phase is Phase.NONE


def test_the_hold_has_its_time_from_its_own_beginning() -> None:
    plan = preparing()
    plan.prepared(30.0, running())
    assert plan.look(30.0 + plan.deadline() - 0.1, running()) == []
    assert [type(a) for a in plan.look(30.0 + plan.deadline() + 0.1, running())] == [Release]


@pytest.mark.parametrize("stood_s", [0.0, 0.25])
def test_what_an_image_costs_is_the_time_for_which_all_stood_still(stood_s: float) -> None:
    """Not the time of the pre-dump, but what the processes stood still for it."""
    plan = preparing()
    plan.prepared(40.0, running(), stood_s)
    plan.look(40.0, held(7))
    plan.dumped(40.4, held(7))
    assert Keep(1) in plan.copied(40.5)
    pause_s = images.SHARE * (0.5 + stood_s)
    assert plan.look(40.5 + pause_s - 1, running(9)) == []
    assert plan.look(40.5 + pause_s + 1, running(9)) == [Prepare()]


def test_the_next_agent_gives_it_up_and_has_no_image_to_drop() -> None:
    plan, after = preparing(), ImagePlan()
    assert after.adopt(5.0, plan.note()) == [Release()]
    assert after.phase is Phase.NONE
    assert after.look(5.0 + images.LEAST_S, running()) == [Hold(7)]
    assert Drop(1) not in after.interrupted(6.5, "why")
