"""What an agent tells the head of its servers: the same after its own death as before."""

from __future__ import annotations

import json
from typing import Any

from pyft.hosts.place.elsewhere import ENDED_KEPT, Elsewhere
from pyft.hosts.wire.servers import DEAD, ENDED, MADE, MAKING, OF_SERVERS, WORKS, message_of
from pyft.recovery.rank import Rank, State
from pyft.wire import messages as wire

KEY, OTHER = 5, 6
WANT = wire.WantExport(KEY, 1, wire.ExportReason.FROM_RECORDS)


class Agent:
    """A table, and what the head has been told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.table = Elsewhere(lambda kind, **values: self.told.append((kind, values)))

    def declared(self) -> tuple[dict[str, Any], list[wire.Message], list[tuple[int, int]]]:
        """Return what is declared, asked again, and which servers have heard half of a repair."""
        self.told.clear()
        half = self.table.declare()
        (kind, said), *again = self.told
        assert kind == "declare"
        return said, [message_of(values, OF_SERVERS) for _, values in again], half

    def next(self) -> Agent:
        """Return the agent after this one."""
        agent = Agent()
        agent.table.restore(json.loads(json.dumps(self.table.note())))
        return agent


def busy() -> Agent:
    """Return an agent whose servers have said a lot."""
    agent = Agent()
    agent.table.follow([Rank(0, 0, 0, 0, 1), Rank(1, 1, 1, 1, 2)], set())
    for said in (wire.Minted(KEY), wire.Making(KEY, 0, 2), wire.Made(KEY, 0, 2)):
        agent.table.hear(0, 1, said)
    for said in (wire.Making(OTHER, 1, 2), wire.Broken(OTHER, 1)):
        agent.table.hear(1, 2, said)
    return agent


def test_all_that_was_said_is_declared_also_by_the_next_agent() -> None:
    agent = busy()
    wanted = {
        "servers": [[0, 1, WORKS, 0], [1, 2, WORKS, 0]],
        "members": [[KEY, 0, 0, 1, MADE, 0], [OTHER, 1, 1, 2, MAKING, 0]],
        "minted": [[KEY, 0]],
        "broken": [[OTHER, 1]],
    }
    for one in (agent, agent.next(), agent.next().next()):
        assert one.declared() == (wanted, [], [])


def test_a_question_is_asked_again_until_it_is_answered() -> None:
    agent = busy()
    agent.table.hear(1, 2, WANT)
    assert agent.declared()[1:] == ([WANT], [])
    assert agent.next().declared()[1:] == ([WANT], [])
    agent.table.told(1, 2, wire.Export(KEY, 1, wire.ExportAnswer.HAVE_IT), 9)
    assert agent.next().declared()[1:] == ([], [(1, 2)])
    agent.table.hear(1, 2, wire.Made(KEY, 1, 2))
    said, again, half = agent.next().declared()
    assert (again, half) == ([], [])
    assert [KEY, 1, 1, 2, MADE, 9] in said["members"]


def test_a_server_that_is_dead_asks_for_nothing() -> None:
    agent = busy()
    agent.table.hear(1, 2, WANT)
    agent.table.follow([Rank(1, 1, 1, 1, 2, State.FENCING)], set())
    said, again, _ = agent.declared()
    assert again == []
    assert [1, 2, DEAD, 0] in said["servers"]


def test_a_member_that_was_told_of_another_one_says_of_which_repair() -> None:
    agent = busy()
    agent.table.told(0, 1, wire.DoReplace(KEY, 1, 7), 0)
    assert agent.declared()[0]["members"][0] == [KEY, 0, 0, 1, MADE, 7]


def test_a_member_that_has_ended_is_declared_as_one_that_was_there() -> None:
    agent = busy()
    agent.table.hear(0, 3, wire.Ended(KEY, 0))  # of a server that was never in it
    assert agent.declared()[0]["members"][0][4] == MADE
    agent.table.hear(0, 1, wire.Ended(KEY, 0))
    assert [KEY, 0, 0, 1, ENDED, 0] in agent.declared()[0]["members"]


def test_only_what_changes_is_said() -> None:
    agent = busy()
    agent.told.clear()
    agent.table.follow([Rank(0, 0, 0, 0, 1), Rank(1, 1, 1, 1, 2)], set())
    assert agent.told == []
    agent.table.follow([Rank(0, 0, 0, 0, 1)], {0})
    assert agent.told == [("stands", {"servers": [[0, 1, WORKS, 1]]})]


def test_a_job_may_make_and_end_any_number_of_communicators() -> None:
    """The head takes a bounded table: only those that ended last, and all that are there."""
    agent = busy()
    for key in range(100, 100 + 2 * ENDED_KEPT):
        agent.table.hear(0, 1, wire.Minted(key))
        for rank in (0, 1):
            agent.table.hear(rank, rank + 1, wire.Made(key, rank, 2))
        agent.table.hear(0, 1, wire.Broken(key, 0))
        for rank in (0, 1):
            agent.table.hear(rank, rank + 1, wire.Ended(key, rank))
    for one in (agent, agent.next()):
        said = one.declared()[0]
        last = 100 + 2 * ENDED_KEPT - ENDED_KEPT // 2
        assert [row[0] for row in said["members"]] == [
            *(KEY, OTHER),
            *(key for key in range(last, 100 + 2 * ENDED_KEPT) for _ in (0, 1)),
        ]
        assert [key for key, _ in said["minted"]] == [KEY, *range(last, 100 + 2 * ENDED_KEPT)]
        assert len(said["broken"]) == ENDED_KEPT // 2 + 1


def test_servers_that_have_ended_are_not_declared_without_a_communicator() -> None:
    agent = busy()
    for id in range(2, 2000):
        gone = Rank(id, 0, 0, 0, id + 1, State.GONE)
        agent.table.follow([gone], {id})
        agent.table.tidy(())
    for one in (agent, agent.next()):
        servers = one.declared()[0]["servers"]
        assert [id for id, *_ in servers] == [0, 1], "the head takes so many only"
