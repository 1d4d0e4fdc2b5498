"""The head decides whether a server is replaced alone, and reads what agents say of their servers."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import test_coordinator as coordinators  # noqa: E402

from pyft.agent.host_images import HostImages  # noqa: E402
from pyft.hosts.head import of_servers  # noqa: E402
from pyft.hosts.head.decisions import Phase, Say  # noqa: E402
from pyft.hosts.head.declared import Declared  # noqa: E402
from pyft.hosts.head.status import Faults  # noqa: E402
from pyft.hosts.place.actions import Alone, Doubt, Look, Recovering, Tell  # noqa: E402
from pyft.hosts.place.remote import RemoteImages  # noqa: E402
from pyft.hosts.wire.link import LinkError  # noqa: E402
from pyft.hosts.wire.servers import ENDED, MADE, MAKING, RECOVERS, WORKS, as_text  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402

KEY, OTHER = 5, 6
WHY = "the server of rank [1] has died"


class World(coordinators.World):
    """Two places whose agents have declared a server each."""

    def declare(self, state: int = MADE, *, epoch: int = 1, places: int = 2) -> None:
        """Let agents tell of their servers; `state`: what their ranks are in a communicator."""
        for place in range(places):
            rows = [[KEY, place, 0, epoch, state, 0]]
            self.head.declare(self.now, place, Declared([[0, epoch, WORKS, 0]], rows))
        self.take()

    def fault(self, place: int = 1, epoch: int = 1) -> list[tuple[Any, str]]:
        """Let a server die; return what is said."""
        self.head.fault(self.now, place, 0, epoch, WHY)
        return coordinators.kinds(self.take())


def test_a_server_is_replaced_alone_and_that_is_written_once() -> None:
    world = World()
    world.declare()
    assert world.fault() == [(("agent", 1), "alone")]
    assert world.fault() == [(("agent", 1), "alone")]  # the agent has not heard it
    assert [e["kind"] for e in world.ledger].count("alone") == 1
    assert world.head.phase is Phase.RUN
    assert world.fault(epoch=2) == [(("agent", 1), "alone")]  # the next one dies as well
    assert [e["kind"] for e in world.ledger].count("alone") == 2


def test_another_head_gives_the_same_answer() -> None:
    world = World()
    world.declare()
    world.fault()
    world.restarted()
    for place in range(2):
        world.head.agent(world.now, place, 0)
    world.take()
    assert world.fault() == []  # it does not know yet what servers there are
    world.declare(epoch=2)
    assert world.fault() == [(("agent", 1), "alone")]
    assert [e["kind"] for e in world.ledger].count("alone") == 1


def test_all_go_back_where_a_communicator_was_being_made() -> None:
    world = World()
    world.image()
    world.declare(MAKING)
    assert world.fault() == [(("agent", 0), "back"), (("agent", 1), "back")]
    assert "it is not replaced alone: it was making a communicator" in world.ledger[-1]["why"]


@pytest.mark.parametrize("declared", [False, True])
def test_a_communicator_that_was_made_and_has_ended_is_none_to_be_made(declared: bool) -> None:
    world = World()
    world.declare()
    head, now = world.head, world.now
    for said in (wire.Minted(OTHER), wire.Making(OTHER, 0, 2)):
        head.heard(now, 0, 0, 1, said)
        assert "communicator" in head.repairs.why_not_alone(0, 0)
    head.heard(now, 0, 0, 1, wire.Made(OTHER, 0, 2))
    head.heard(now, 0, 0, 1, wire.Ended(OTHER, 0))
    if declared:  # as the agent's table has it
        rows = [[OTHER, 0, 0, 1, ENDED, 0]]
        head.declare(now, 0, Declared([[0, 1, WORKS, 0]], rows, [[OTHER, 0]]))
    world.take()
    assert world.fault(place=0)[-1] == (("agent", 0), "alone")


@pytest.mark.parametrize("dumping", [False, True])
def test_an_image_that_is_being_made_is_passed_over(dumping: bool) -> None:
    world = World()
    world.declare()
    step = world.hold()
    for place in range(2 if dumping else 1):
        world.head.held(world.now, place, step, [])
    world.take()
    assert world.head.phase is (Phase.DUMP if dumping else Phase.HOLD)
    said = world.fault()
    assert (("agent", 0), "release") in said
    assert said[-1] == (("agent", 1), "alone")
    assert world.head.pending is None


def test_no_image_is_begun_while_a_server_is_replaced() -> None:
    world = World()
    world.declare()
    for place in range(2):
        world.head.status(place, 10, 0.5)
    world.head.stands(world.now, 1, [[0, 2, RECOVERS, 0]])
    assert {(s.to[1], s.kind, s.values["now"]) for s in world.pass_time(3.0)} == {
        (0, "recovering", 1),  # clocks of programs stand still at all places
        (1, "recovering", 1),
    }
    world.head.stands(world.now, 1, [[0, 2, WORKS, 0]])
    assert [s.values["now"] for s in world.take()] == [0, 0]
    assert "hold" in {s.kind for s in world.pass_time(1.0)}


def test_what_is_of_an_earlier_round_counts_for_nothing() -> None:
    world = World()
    world.image()
    world.declare()
    world.head.lost(world.now, 0, "the client of rank [0] was killed")
    world.take()
    assert not world.head.repairs.is_complete
    said = {"kind": "stands", "round": 0, "servers": [[0, 1, WORKS, 0]]}
    of_servers.heard(world.head, world.now, 0, said)
    of_servers.heard(world.head, world.now, 0, {"kind": "fault", "round": 0} | _fault())
    assert world.take() == []


def test_a_place_that_has_ended_is_waited_for_no_longer() -> None:
    world = World()
    world.declare()
    world.head.done(0, 0)
    world.head.gone(world.now, 0)
    assert coordinators.kinds(world.take()) == [(("agent", 1), "tell")]  # that rank 0 has left
    assert world.fault() == [(("agent", 1), "alone")]


def test_faults_that_were_repaired_alone_are_counted() -> None:
    world, faults = World(), Faults()
    world.declare()
    world.fault()
    for entry in world.ledger:
        faults.take(entry, world.head.facts)
    assert (faults.alone, faults.count) == (1, 0)


def _fault(**changed: Any) -> dict[str, Any]:
    return {"client": 0, "epoch": 1, "why": WHY} | changed


GOOD: dict[str, dict[str, Any]] = {
    "declare": {"servers": [[0, 1, 2, 0]], "members": [[5, 0, 0, 1, 2, 0]], "minted": [[5, 0]]}
    | {"broken": [[5, 1]]},
    "stands": {"servers": [[0, 1, 0, 1]]},
    "heard": {"client": 0, "epoch": 1, "data": as_text(wire.Made(5, 0, 2))},
    "looked": {"number": 7},
    "fault": _fault(),
}
BAD: list[tuple[str, dict[str, Any]]] = [
    ("declare", {"servers": [[1 << 24, 1, 2, 0]]}),
    ("declare", {"servers": [[0, 1, 3, 0]]}),
    ("declare", {"members": [[5, 0, -1, 1, 2, 0]]}),
    ("declare", {"members": [[5, 0, 0, 1, 9, 0]]}),
    ("declare", {"members": [[5, 0, 0, 1, 2, 1 << 32]]}),
    ("declare", {"members": [[-1, 0, 0, 1, 2, 0]]}),
    ("declare", {"minted": [[5, -1]]}),
    ("declare", {"minted": [[-1, 0]]}),
    ("declare", {"broken": [[5]]}),
    ("declare", {"broken": [[-1, 1]]}),
    ("stands", {"servers": [[0, -1, 0, 0]]}),
    ("stands", {"servers": [[0, 1, 0, 2]]}),
    ("heard", {"data": "no base64!"}),
    ("heard", {"data": as_text(wire.Live())}),
    ("heard", {"data": as_text(wire.Made(5, 0, 2))[:-8]}),
    ("heard", {"client": 1 << 24}),
    ("looked", {"number": -1}),
    ("fault", {"why": 5}),
]


def test_all_that_can_be_said_of_servers_is_taken() -> None:
    world = World()
    for kind in ("declare", "stands", "heard", "looked", "fault"):
        of_servers.heard(world.head, world.now, 0, {"kind": kind, "round": 0} | GOOD[kind])
    assert set(GOOD) == set(of_servers.KINDS)


@pytest.mark.parametrize(("kind", "wrong"), BAD)
def test_what_cannot_be_is_refused(kind: str, wrong: dict[str, Any]) -> None:
    world = World()
    world.declare()
    with pytest.raises(LinkError):
        of_servers.heard(world.head, world.now, 0, {"kind": kind, "round": 0} | GOOD[kind] | wrong)


class Link:
    """What the head says to an agent."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self._said, self.told = list(said), [dict[str, Any]()]

    def heard(self) -> dict[str, Any] | None:
        """Return the next message."""
        return self._said.pop(0) if self._said else None

    def say(self, kind: str, **values: Any) -> bool:
        """Take what the agent says."""
        self.told.append({"kind": kind} | values)
        return True


def test_an_agent_does_what_the_head_says_of_its_servers() -> None:
    images = RemoteImages()
    who = {"round": 0, "client": 3, "epoch": 4}
    tell = who | {"data": as_text(wire.Join(5, 1)), "repair": 9}
    images.link = Link(  # type: ignore[assignment]
        {"kind": "look", "round": 0, "number": 7},
        {"kind": "tell"} | tell,
        {"kind": "tell"} | tell | {"round": 1},
        {"kind": "doubt", "sign": "communicator", "why": "late"} | who,
        {"kind": "alone"} | who,
        {"kind": "alone"} | who,
        {"kind": "recovering", "round": 0, "now": 1},
    )
    images.tell_fault(0.0, 3, 4, WHY)
    done = images.look(0.0, [])
    doubt = Doubt(3, 4, "communicator", "late")
    tell_it = Tell(3, 4, wire.Join(5, 1), 9)
    assert done == [Look(7), tell_it, doubt, Alone(3, 4), Recovering(True)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "tell", "data": as_text(wire.Made(5, 0, 2)), "repair": 0},
        {"kind": "tell", "data": as_text(wire.Join(5, 1)), "repair": -1},
        {"kind": "doubt", "sign": "mismatch", "why": ""},
        {"kind": "alone", "client": "x"},
        {"kind": "recovering", "now": 2},
    ],
)
def test_an_agent_refuses_what_cannot_be(wrong: dict[str, Any]) -> None:
    images = RemoteImages()
    images.link = Link({"round": 0, "client": 3, "epoch": 4} | wrong)  # type: ignore[assignment]
    images.tell_fault(0.0, 3, 4, WHY)
    (failed,) = images.look(0.0, [])
    assert "the head says what cannot be" in failed.why


def test_an_agent_asks_again_until_the_head_answers() -> None:
    images, link = RemoteImages(), Link()
    images.link = link  # type: ignore[assignment]
    images.tell_fault(0.0, 3, 4, WHY)
    for tenth in range(30):
        images.look(tenth / 10, [])
    assert [said["kind"] for said in link.told[1:]] == ["fault"] * 3
    assert images.unanswered() == ""


@pytest.mark.parametrize("what", ["server", "client"])
def test_a_head_may_be_away_while_the_place_stands_still(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher stops the agent, too: when it runs again the head has had no time to answer."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    plan: Any = SimpleNamespace(rollback=True, lacks_gpu=str)
    servers: Any = SimpleNamespace(options=SimpleNamespace(), plan=plan, ending=False)
    images = HostImages(servers)
    images._plan.link = Link()  # type: ignore[assignment]
    if what == "server":
        images._plan.tell_fault(now[0], 3, 4, WHY)
    else:
        images.client_lost(WHY)
    now[0] += 150.0
    images.look()
    assert images.failed == ""
    for _ in range(1210):
        now[0] += 0.1
        images.look()
    assert images.failed == f"{WHY}, and the head says nothing"


def test_what_the_head_says_in_any_order_of_faults_and_losses_never_breaks_it() -> None:
    for seed in range(50):
        dice, world = random.Random(seed), World(spares=2)
        world.declare()
        for _ in range(40):
            place = dice.randrange(2)
            kind = dice.choice(("fault", "image", "cut", "client", "time"))
            if kind == "fault":
                world.fault(place, dice.randrange(1, 4))
            elif kind == "image" and world.head.phase is Phase.RUN:
                world.pass_time(1.0)
            elif kind == "cut":
                world.head.gone(world.now, place)
                world.head.agent(world.now, place, world.head.facts.round)
                world.declare()
            elif kind == "client" and world.head.facts.line:
                world.head.lost(world.now, place, "a client was killed")
            else:
                world.pass_time(0.5)
            said = [one for one in world.take() if isinstance(one, Say)]
            assert all(one.values.get("round", 0) <= world.head.facts.round for one in said)
        assert not world.head.facts.failed
