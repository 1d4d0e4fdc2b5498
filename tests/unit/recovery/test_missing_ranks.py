"""When the user hears that ranks wait for others which another agent has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives, missing_ranks
from pyft.agent.lifecycle.missing_ranks import LATE_S, MissingRanks
from pyft.agent.members.ranks import Claim
from pyft.agent.process import messages
from pyft.recovery.rank import State


class Job:
    """Ranks of which a launcher says how many there are to be; the first two are here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.said, self.making = 1000.0, list[str](), {0}
        self.phase = page.Phase.LIVE
        self.servers = SimpleNamespace(members={}, elsewhere=None, plan=SimpleNamespace(ranks={}))
        for id in (0, 1):
            self.come(id)
        self.missing = MissingRanks(self.servers)  # type: ignore[arg-type]
        monkeypatch.setattr(messages, "say", self.said.append)
        state = lambda _: SimpleNamespace(phase=self.phase)  # noqa: E731
        monkeypatch.setattr(missing_ranks.page, "read", state)
        makes = lambda member, _: member.id in self.making  # noqa: E731
        monkeypatch.setattr(collectives, "makes_communicator", makes)

    def come(self, id: int, world: str = "4") -> None:
        claim = Claim(id, 100 + id, id, {"RANK": str(id), "WORLD_SIZE": world})
        channel = SimpleNamespace(control_fd=-1)
        self.servers.members[id] = SimpleNamespace(
            id=id, claim=lambda: claim, client_gone=False, channel=channel
        )
        self.servers.plan.ranks[id] = SimpleNamespace(state=State.RUNNING)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.missing.look(self.now)
            self.now += 0.5


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def test_the_user_hears_once_that_ranks_wait_for_those_of_another_job(job: Job) -> None:
    job.run(LATE_S)
    assert job.said == []
    job.run(200)
    assert job.said == [
        "[2] of [4] ranks are in this job, and have waited for the others for [60 s] to make a "
        "communicator: ranks that run under another `pyft run` do not come to it. One `pyft run` "
        "has all ranks of a host, and those of several hosts are joined by --head"
    ]


def test_ranks_that_come_later_are_waited_for(job: Job) -> None:
    job.run(LATE_S - 1)
    job.come(2)
    job.run(LATE_S - 1)
    job.come(3)
    job.run(200)
    assert job.said == []


@pytest.mark.parametrize("why", ["no world", "nobody waits", "recovers", "is joined", "has ended"])
def test_nothing_is_said_where_all_may_come(job: Job, why: str) -> None:
    if why == "no world":
        for id in (0, 1):
            job.come(id, "")
    elif why == "nobody waits":
        job.making = set()
    elif why == "recovers":
        job.servers.plan.ranks[0].state = State.RECOVERING
    elif why == "is joined":
        job.servers.elsewhere = SimpleNamespace()
    else:
        job.servers.members[0].client_gone = True
    job.run(300)
    assert job.said == []


def test_a_call_of_a_replay_waits_for_those_that_were_there(job: Job) -> None:
    job.phase = page.Phase.REPLAY
    job.run(300)
    assert job.said == []
