"""Takes in the deaths of servers: what each has died of, and which processes have to know of it.

What a server has said itself counts, its status, and NVML; of what its client can write as well
only numbers for people are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft import log
from pyft.agent.channel import page
from pyft.agent.lifecycle import nvml
from pyft.agent.members.member import Member
from pyft.agent.members.server import LastWords, Server
from pyft.recovery import classify, events
from pyft.recovery.rank import State
from pyft.wire.layout import ATTACH_EXIT

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

LOG = log.logger("agent")


class Deaths:
    """The one place to which a server's death comes, whatever has noticed it."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        real = servers.options.backend != "soft"
        self._nvml = nvml.load(servers.options.real_gpus) if real else None

    def exited(self, member: Member) -> None:
        """Take in a death that wait() has confirmed."""
        servers, server = self._servers, member.server
        assert server is not None
        assert server.status is not None
        while servers.router.read(member, server):  # what it said before it died
            pass
        servers.loop.forget(server.socket)
        rank = servers.plan.ranks.get(member.id)
        if servers.ending or rank is None:
            return
        if member.client_gone or member.said_goodbye():
            servers.event(events.Left(member.id))
            return
        fault = self._fault_of(member, server)
        if not servers.asks_head(member, server.epoch, fault):
            self.decided(member, server.epoch, fault)

    def decided(self, member: Member, epoch: int, fault: classify.Fault) -> None:
        """Take in a death that the plan is to repair."""
        rank = self._servers.plan.ranks[member.id]
        LOG.debug("rank [%d]: server [pid %d] is dead: %s", rank.rank, member.server_pid, fault)
        self._servers.incidents.died(member, rank, fault)
        self._decide(member, epoch, fault)

    def of_known_fault(self, member: Member, server: Server, fault: classify.Fault) -> None:
        """Take in the death of a server that the agent before had ended, or seen dead."""
        self._servers.incidents.fenced(member.id)
        self._decide(member, server.epoch, fault)

    def not_started(self, member: Member, epoch: int, why: str) -> None:
        """Take in that a server could not be started; its client may have ended since."""
        if member.client_gone:
            return
        fault = classify.Fault(classify.row_of("exit", ATTACH_EXIT), why)
        self._servers.incidents.died(member, self._servers.plan.ranks[member.id], fault)
        self._servers.event(events.Exited(member.id, epoch, fault))

    def ask_nvml(self) -> None:
        """End the servers on GPUs about which the driver has reported something."""
        for gpu, fault in self._nvml.xids() if self._nvml else []:
            for member in self._servers.members.values():
                if member.server and member.server_alive and member.server.gpu == gpu:
                    suspected = events.Suspected(member.id, member.server.epoch, fault)
                    self._servers.event(suspected)

    def _decide(self, member: Member, epoch: int, fault: classify.Fault) -> None:
        """What waits for something of that server does no longer; then the plan is asked."""
        self._servers.comparison.restarted(member)
        self._servers.spilling.restarted(member.id)
        self._servers.event(events.Exited(member.id, epoch, fault))

    def _fault_of(self, member: Member, server: Server) -> classify.Fault:
        """Go by what the server has said. What the page says of it, the client can have written."""
        last = page.read(member.channel.control_fd)
        words = server.words or LastWords(0, 0, 0, "")
        said = (words.kind, words.code, words.text, words.seq or last.dispatching_seq)
        fault = classify.of_exit(server.status or 0, *said, last.snapshot_cut)
        rank = self._servers.plan.ranks[member.id]
        imports = rank.state is State.RECOVERING and bool(last.shared & page.Shared.IMPORTS)
        from_nvml = self._nvml.look(server.gpu) if self._nvml else None
        return classify.weighed(fault, from_nvml, replays_imports=imports)
