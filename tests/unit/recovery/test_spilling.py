"""New servers get what they need from stores of others, who write it down for them first."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pyft.agent.replicas.spilling import SPILL_S, Spilling
from pyft.wire import messages as wire


class Server(SimpleNamespace):
    def send(self, message: wire.Message) -> bool:
        self.told.append(message)
        return self.listens

    def send_store(self, owner: int, attempt: int, fd: int) -> None:
        self.stores.append((owner, attempt, fd))


class Agent:
    """A job with members 0, 1 and 2, which have the same contents."""

    def __init__(self, jit: bool = True) -> None:
        self.members = {id: self.member(id) for id in range(3)}
        self.timers: list[tuple[float, Callable[[], None]]] = []
        sharing = SimpleNamespace(
            jit=jit,
            line=lambda id: 7,
            candidates=lambda id, owner: [owner, *sorted({0, 1, 2} - {id, owner})][
                : 3 if jit else 1
            ],
            store=lambda id: 100 + id,
        )
        self.spilling = Spilling(
            self.members,  # type: ignore[arg-type]
            sharing,  # type: ignore[arg-type]
            lambda seconds, action: self.timers.append((seconds, action)),
        )

    @staticmethod
    def member(id: int) -> SimpleNamespace:
        server = Server(told=[], stores=[], alive=True, listens=True, epoch=4)
        return SimpleNamespace(id=id, server=server)

    def server(self, id: int) -> Server:
        return self.members[id].server

    def wants(self, owner: int = 1, attempt: int = 0) -> list[tuple[int, int, int]]:
        """Let member 0 ask for a store; return what it has got so far."""
        self.spilling.wanted(0, self.server(0), wire.WantStore(owner, attempt))  # type: ignore[arg-type]
        return self.server(0).stores

    def asked(self, id: int) -> list[int]:
        """Return what a member was told to write down: the steps."""
        return [message.step for message in self.server(id).told]

    def answers(self, id: int, whom: int | None = None, missing: int = 0) -> None:
        """Let a member answer its last question, or that of another."""
        number = self.server(id if whom is None else whom).told[-1].number
        self.spilling.spilled(id, wire.Spilled(number, missing))


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_a_store_is_given_when_it_has_been_filled(agent: Agent) -> None:
    assert agent.wants() == []
    assert agent.asked(1) == [7]
    agent.answers(2, whom=1)
    agent.spilling.spilled(1, wire.Spilled(9))  # an older agent's
    assert agent.server(0).stores == []
    agent.answers(1)
    agent.answers(1)
    assert agent.server(0).stores == [(1, 0, 101)]


def test_then_come_the_stores_of_others_and_then_none(agent: Agent) -> None:
    agent.wants(attempt=1)
    assert agent.asked(2) == [7]
    agent.answers(2, missing=3)  # where it is looked for it will be missed
    assert agent.wants(attempt=2) == [(1, 1, 102), (1, 2, -1)]


def test_who_does_not_answer_is_waited_for_for_a_while(agent: Agent) -> None:
    assert agent.wants() == []
    assert [seconds for seconds, _ in agent.timers] == [SPILL_S]
    agent.timers[0][1]()
    agent.timers[0][1]()
    assert agent.server(0).stores == [(1, 0, 101)]


@pytest.mark.parametrize("how", ["dead", "deaf", "dies", "none"])
def test_the_store_of_the_dead_is_given_as_it_is(agent: Agent, how: str) -> None:
    agent.server(1).alive = how != "dead"
    agent.server(1).listens = how != "deaf"
    if how == "none":
        agent.members[1].server = None
    agent.wants()
    if how == "dies":
        agent.spilling.restarted(1)
    assert agent.server(0).stores == [(1, 0, 101)]


def test_without_copies_in_gpus_nobody_is_asked() -> None:
    agent = Agent(jit=False)
    assert agent.wants() == [(1, 0, 101)]
    assert agent.wants(attempt=1)[1:] == [(1, 1, -1)]
    assert agent.server(1).told == []
    done = []
    agent.spilling.before([0, 1], lambda: done.append(True))
    assert done


def test_servers_are_ended_when_what_others_need_is_written_down(agent: Agent) -> None:
    done: list[bool] = []
    agent.spilling.before([1, 2], lambda: done.append(True))
    agent.answers(2)
    assert not done
    agent.spilling.restarted(1)
    assert done == [True]
