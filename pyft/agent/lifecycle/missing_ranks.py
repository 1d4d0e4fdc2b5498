"""Says so when ranks that make a communicator wait for ranks that are not in this job.

Each `pyft run` has an agent of its own, which knows its own ranks only. Where all replay, the agent
says under which id a communicator is made. Ranks of two agents then never meet, and no library has a
deadline for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives
from pyft.agent.members import ranks
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.recovery.rank import State

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

LATE_S = 60.0  # a program that computes something before it uses a GPU may take as long


class MissingRanks:
    """Periodic looks, by Watch. Whether all hosts are joined is the head's to know."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._present = 0  # how many ranks there were at the last look,
        self._since = 0.0  # and since when as many have waited for others
        self._told = False

    def look(self, now: float) -> None:
        """Look once."""
        if self._told or self._servers.elsewhere:
            return
        present, world = self._count()
        if not 0 < present < world or present != self._present or not self._waits():
            self._present, self._since = present, now
        elif now - self._since >= LATE_S:
            self._told = True
            messages.say(
                f"[{present}] of [{world}] ranks are in this job, and have waited for the others for "
                f"[{now - self._since:.0f} s] to make a communicator: ranks that run under another "
                "`pyft run` do not come to it. One `pyft run` has all ranks of a host, and those of "
                "several hosts are joined by --head"
            )

    def _count(self) -> tuple[int, int]:
        """Return how many ranks have come, and how many there are to be; 0: no word."""
        claims = [member.claim() for member in self._servers.members.values()]
        return len({claim.rank for claim in claims} - {None}), ranks.how_many(claims)

    def _waits(self) -> bool:
        """Say whether one of them is in a call that makes a communicator."""
        return any(map(self._makes, self._servers.members.values()))

    def _makes(self, member: Member) -> bool:
        rank = self._servers.plan.ranks.get(member.id)
        if not rank or rank.state is not State.RUNNING or member.client_gone:
            return False
        state = page.read(member.channel.control_fd)
        live = state.phase == page.Phase.LIVE
        return live and collectives.makes_communicator(member, state)
