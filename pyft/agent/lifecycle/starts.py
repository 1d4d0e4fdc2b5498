"""Starts the servers of members: the first ones, and those that take over from a dead one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft import log
from pyft.agent.channel import page
from pyft.agent.job.environment import JOB_TOKEN, lost_gpus, of_replacement, server_environment
from pyft.agent.members.member import Member
from pyft.agent.members.server import Server
from pyft.recovery import events

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

LOG = log.logger("agent")
AGAIN_S = 0.1  # after a server that could not be started


class Starts:
    """The one place from which a server comes to a member."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def replace(self, member: Member, action: events.Start) -> None:
        """Start the next server of a member; that it cannot be started is its death."""
        servers = self._servers
        servers.incidents.started(member, servers.plan.ranks[action.id], action.together)
        try:
            self.start(member, action)
        except OSError as error:
            why = f"the server cannot be started: {error}"
            servers.loop.after(
                AGAIN_S, lambda: servers.deaths.not_started(member, action.epoch, why)
            )
        servers.changed()

    def start(self, member: Member, action: events.Start) -> None:
        """Start a server, or take one that stands by; raise OSError when that is impossible."""
        servers, channel = self._servers, member.channel
        channel.epoch = action.epoch
        member.servers += 1
        servers.audits.restarted(member.id)
        servers.audits.leave(action.gpu)
        if member.servers == 1:
            page.write(channel.control_fd, epoch=action.epoch)
        else:
            member.disputes.came_to(page.read_one(channel.control_fd, "dispatching_seq"))
            page.prepare_for_next_server(channel.control_fd, action.epoch, action.mode)
        environment = self._environment_of(member, action)
        where = (action.epoch, action.gpu)
        if server := servers.standby.take(environment, *where):
            servers.room.taken(server)
        else:
            server = Server.spawn(servers.supervisor, servers.program, environment, *where)
        LOG.debug(
            "rank [%s]: server [pid %d] of epoch [%d] on GPU [%d]",
            *(member.channel.rank, server.pid, action.epoch, action.gpu),
        )
        before, member.server = member.server, server
        servers.keep()  # what has memory of the job is known to every later agent
        if before:  # the socket of one that was taken over is in the handover as well
            servers.loop.forget(before.socket)
            before.socket.close()
            servers.supervisor.forget(before.pid)
        servers.listen(member, server)
        server.introduce(channel)

    def environment(self, member: Member, gpu: int) -> dict[str, str]:
        """Return the environment of any server of a member."""
        servers = self._servers
        known, device = max(servers.gpus.known) + 1, member.channel.device
        environment = server_environment(servers.options, member.environment, device, gpu, known)
        return environment | {JOB_TOKEN: servers.job_token}

    def _environment_of(self, member: Member, action: events.Start) -> dict[str, str]:
        servers = self._servers
        environment = self.environment(member, action.gpu)
        if member.servers > 1:
            environment = of_replacement(environment | member.disputes.environment())
            if servers.options.real_gpus:
                environment["PYFT_SELF_TEST"] = "1"
        environment |= lost_gpus(member.channel.device, action.gpu, servers.gpus.lost)
        if action.arbitrates:
            environment["PYFT_ARBITRATE"] = str(action.arbitrates)
        if action.entry:
            environment["PYFT_LINE"] = str(action.entry)
        return environment | servers.injector.asked_of(member, action.epoch)
