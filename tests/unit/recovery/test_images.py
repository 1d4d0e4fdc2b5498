"""When clients are held, what is passed over, and which image counts: in every order of events."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from pyft.recovery import images
from pyft.recovery.images import (
    ClientState,
    Copy,
    Drop,
    Dump,
    Hold,
    ImagePlan,
    Keep,
    Phase,
    Release,
)

RANKS = (0, 1)


def running(steps: int = 5) -> list[ClientState]:
    """Return clients that are between two cuts."""
    return [ClientState(id, steps, 0, 0, steps - 1, True) for id in RANKS]


def held(step: int) -> list[ClientState]:
    """Return clients that stand behind the cut of a step, which is their line."""
    return [ClientState(id, step, step, step + id, step + id, True) for id in RANKS]


def made(plan: ImagePlan, now: float = 0.0, steps: int = 5) -> ImagePlan:
    """Have an image made without any disturbance."""
    assert plan.look(now, running(steps)) == [Hold(steps + 2)]
    (dump,) = plan.look(now, held(steps + 2))
    assert isinstance(dump, Dump)
    assert plan.dumped(now, held(steps + 2)) == [Copy(dump.number, steps + 2)]
    assert Keep(dump.number) in plan.copied(now)
    return plan


def test_an_image_counts_when_it_is_whole() -> None:
    plan = made(ImagePlan())
    assert (plan.current, plan.current_step, plan.phase) == (1, 7, Phase.NONE)
    second = made(plan, now=1000.0, steps=20)
    assert (second.current, second.current_step) == (2, 22)


def test_the_one_before_is_dropped_only_then() -> None:
    plan = made(ImagePlan())
    plan.look(1000.0, running())
    assert Drop(1) not in plan.look(1000.0, held(7))
    assert Drop(1) not in plan.dumped(1000.0, held(7))
    assert plan.lost() == (1, "")
    assert plan.copied(1000.0) == [Keep(2), Release(), Drop(1)]
    assert plan.lost() == (2, "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held_step": 0}, "does not stand at step [7]"),
        ({"line": 3}, "is not its line"),
        ({"drained": False}, "has not drained"),
    ],
)
def test_a_hold_that_does_not_come_about_is_passed_over(
    change: dict[str, object], words: str
) -> None:
    plan = ImagePlan()
    plan.look(0.0, running())
    late = [held(7)[0], replace(held(7)[1], **change)]
    assert plan.look(plan.deadline(), late) == []
    (release,) = plan.look(plan.deadline() + 0.1, late)
    assert isinstance(release, Release)
    assert words in release.why
    assert plan.lost() == (0, "there is no image yet")


def test_what_cannot_be_repeated_alone_is_passed_over_at_once() -> None:
    plan = ImagePlan()
    plan.look(0.0, running())
    behind = [held(7)[0], replace(held(7)[1], behind="ncclAllReduce")]
    assert plan.look(0.0, behind) == [Release("behind the cut stands [ncclAllReduce]")]


def test_a_step_that_a_client_has_passed_is_not_waited_for() -> None:
    """The others would stand still for the whole time of a hold."""
    plan = ImagePlan()
    plan.look(0.0, running())
    assert plan.look(0.0, [held(7)[0], replace(running()[1], steps=7)]) == []
    past = [held(7)[0], replace(running()[1], steps=8)]
    assert plan.look(0.0, past) == [Release("client [1] is past step [7]")]


def test_a_recovery_ends_a_hold_and_none_begins_in_one() -> None:
    plan = ImagePlan()
    broken = [replace(running()[0], works=False), running()[1]]
    assert plan.look(0.0, broken) == []
    plan.look(0.0, running())
    assert plan.look(0.0, broken) == [Release("a rank is being recovered")]


def test_a_client_that_goes_on_during_the_dump_spoils_it() -> None:
    plan = ImagePlan()
    plan.look(0.0, running())
    plan.look(0.0, held(7))
    release, drop = plan.dumped(1.0, [held(7)[0], running(8)[1]])
    assert isinstance(release, Release)
    assert drop == Drop(1)


def test_no_phase_lasts_for_ever() -> None:
    plan = ImagePlan()
    plan.look(0.0, running())
    plan.look(0.0, held(7))
    release, drop = plan.look(images.TAKE_S + 1, held(7))
    assert "more than" in release.why
    assert drop == Drop(1)


def test_the_pace_follows_from_the_cost() -> None:
    plan = ImagePlan()
    plan.look(0.0, running())
    plan.look(0.0, held(7))
    plan.dumped(0.4, held(7))
    plan.copied(0.5)
    assert plan.look(0.5 + 0.5 * images.SHARE - 1, running(9)) == []
    assert plan.look(0.5 + 0.5 * images.SHARE + 1, running(9)) == [Hold(11)]


@pytest.mark.parametrize("step_s", [0.01, 1.0, 5.0, 60.0])
def test_steps_may_be_long(step_s: float) -> None:
    """All come to the cut of the second step from now, however long that takes."""
    plan, steps, now = ImagePlan(every=10), 1, 0.0
    while not (said := plan.look(now, running(steps))):
        steps, now = steps + 1, now + step_s
    assert said == [Hold(10)]
    for _ in range(2):
        now += 1.4 * step_s
        assert plan.look(now, running(steps)) == []
    assert plan.look(now, held(10)) == [Dump(1, 10)]


def test_a_hold_ends_where_the_pace_is_not_known() -> None:
    plan = ImagePlan()
    assert plan.look(0.0, running()) == [Hold(7)]
    assert images.HOLD_S < plan.deadline() < images.MOST_HOLD_S
    assert images.hold_s(2, 1e9) == images.MOST_HOLD_S


def test_a_fixed_pace_counts_steps() -> None:
    plan = made(ImagePlan(every=10), steps=8)
    assert plan.look(0.0, running(17)) == []
    assert plan.look(0.0, running(18)) == [Hold(20)]


def test_images_that_fail_become_rarer() -> None:
    plan, now, pauses = ImagePlan(), 0.0, []
    for _ in range(5):
        began = now
        while not plan.look(now, running()):
            now += 0.25
        pauses.append(now - began)
        now += plan.deadline() + 0.1
        plan.look(now, running())
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[1]


def test_what_kills_each_time_is_not_restored_for_ever() -> None:
    plan = made(ImagePlan())
    assert [plan.lost()[0] for _ in range(images.MOST_RESTORES)] == [1] * images.MOST_RESTORES
    number, why = plan.lost()
    assert number == 0
    assert "times" in why
    assert made(plan, now=1000.0).lost() == (2, "")


def test_the_next_agent_goes_on() -> None:
    plan = made(ImagePlan())
    plan.look(1000.0, running())
    plan.look(1000.0, held(7))
    after = ImagePlan()
    note = json.loads(json.dumps(plan.note()))
    assert after.adopt(2000.0, note) == [Release(), Drop(2)]
    assert after.lost() == (1, "")
    assert made(after, now=3000.0).current == 3  # a number is used once


# ---- every order --------------------------------------------------------------------------------


class World:
    """Clients, the agent, and what is known from outside: what is held, and which images exist."""

    def __init__(self) -> None:
        self.plan = ImagePlan()
        self.now = 0.0
        self.steps = {id: 3 for id in RANKS}
        self.hold = 0
        self.stood = dict.fromkeys(RANKS, 0)
        self.line = {id: 3 for id in RANKS}
        self.whole: dict[int, int] = {}  # image -> step
        self.began: dict[int, int] = {}
        self.agents = 1

    def key(self) -> str:
        """Return what two equal worlds have in common."""
        values = {k: v for k, v in vars(self).items() if k != "plan"}
        return f"{values} {vars(self.plan)}"

    def client_states(self) -> list[ClientState]:
        """Return what the agent sees."""
        return [
            ClientState(id, self.steps[id], self.stood[id], self.steps[id], self.line[id], True)
            for id in RANKS
        ]

    def perform(self, actions: list[images.Action]) -> None:
        """Do what was decided, and look whether it may be done."""
        for action in actions:
            if isinstance(action, Hold):
                self.hold = action.step
            elif isinstance(action, Release):
                self.hold, self.stood = 0, dict.fromkeys(RANKS, 0)
            elif isinstance(action, Dump | Copy):
                assert all(self.stood[id] == action.step for id in RANKS)
                assert all(self.line[id] == action.step for id in RANKS)
                self.began[action.number] = action.step
            elif isinstance(action, Keep):
                self.whole[action.number] = self.began[action.number]
            else:
                self.whole.pop(action.number, None)

    def moves(self) -> list[str]:
        """Return what can happen now."""
        moves = ["look", *(["time"] if self.now < images.HOLD_S else [])]
        for id in RANKS:
            other = self.steps[RANKS[1 - RANKS.index(id)]]
            if not self.stood[id] and self.steps[id] < min(5, other + 1):
                moves.append(f"step {id}")
            if self.line[id] < self.steps[id]:
                moves.append(f"line {id}")
        if self.plan.phase is Phase.DUMP:
            moves += ["dumped", "not dumped", *[f"late {id}" for id in RANKS if self.stood[id]]]
        if self.plan.phase is Phase.COPY:
            moves += ["copied", "not copied"]
        return [*moves, *(["agent"] if self.agents else [])]

    def make(self, move: str) -> None:
        """Let it happen."""
        what, _, text = move.partition(" ")
        id = int(text) if text.isdecimal() else -1
        if what == "look":
            self.perform(self.plan.look(self.now, self.client_states()))
        elif what == "time":
            self.now += images.HOLD_S + 0.1
        elif what == "step":
            self.steps[id] += 1
            self.stood[id] = self.steps[id] if self.steps[id] == self.hold else 0
        elif what == "line":
            self.line[id] = self.steps[id]
        elif what == "late":  # the client's own deadline
            self.stood[id] = 0
        elif what == "agent":
            self.agents -= 1
            note, self.plan = self.plan.note(), ImagePlan()
            self.perform(self.plan.adopt(self.now, note))
        elif move.endswith("dumped"):
            why = "CRIU" if what == "not" else ""
            self.perform(self.plan.dumped(self.now, self.client_states(), why))
        else:
            self.perform(self.plan.copied(self.now, "memory" if what == "not" else ""))

    def check(self) -> None:
        """The image that counts is whole, alone, and of one step; nobody is held for nothing."""
        assert list(self.whole) == ([self.plan.current] if self.plan.current else [])
        if self.plan.current:
            assert self.whole[self.plan.current] == self.plan.current_step
        assert (self.plan.phase is Phase.NONE) == (self.hold == 0)


class NoPace:
    """Of steps that take no time."""

    def saw(self, now: float, steps: int) -> None:
        pass

    def step_s(self, now: float) -> float:
        return 0.0

    def __repr__(self) -> str:
        return ""


def test_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients, slow servers, failed dumps, a client whose patience ends, an agent that dies."""
    known = (("AHEAD", 1), ("SHARE", 0.0), ("LEAST_S", 0.0), ("UNKNOWN_STEP_S", 0.0))
    for name, value in (*known, ("Pace", NoPace)):
        monkeypatch.setattr(images, name, value)
    todo, seen, images_seen = [World()], set(), set()
    while todo:
        world = todo.pop()
        for move in world.moves():
            after = copy.deepcopy(world)
            after.make(move)
            after.check()
            images_seen.add(after.plan.current)
            if (key := after.key()) not in seen:
                seen.add(key)
                todo.append(after)
        assert len(seen) < 100_000
    assert len(seen) > 1000
    assert {0, 1, 2} <= images_seen
