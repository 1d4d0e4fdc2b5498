"""Keeps as many servers standing by as the job wants, and up to date with the job's modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft import config
from pyft.agent.job.environment import of_replacement
from pyft.agent.members.member import Member
from pyft.agent.standby import standby

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

STANDBY_AFTER_S = 1.0  # servers that stand by are started so long after one has begun to work


class Reserve:
    """Between the job's servers and the pool of those that stand by."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def fill(self, member: Member) -> None:
        """Have servers stand by. Not while a client or a recovery waits for the processor."""
        servers = self._servers
        if servers.ending:
            return
        gpu = servers.gpus.behind[member.channel.device]
        environment = of_replacement(servers.starts.environment(member, gpu))
        names = list(dict.fromkeys(servers.options.real_gpus))

        def variables(gpu: int) -> dict[str, str]:
            if gpu == standby.ANY:
                return {}
            return {"PYFT_STANDBY": str(names.index(servers.options.real_gpus[gpu]))}

        servers.standby.fill(environment, self._gpus(), variables)
        self.follow_modules()

    def follow_modules(self) -> None:
        """Have those that stand by load what the members have loaded."""
        if config.get_str("PYFT_STANDBY_MODULES") == "0":
            return
        members = self._servers.members.values()
        alive = [m for m in members if m.server and not m.client_gone]
        gpus = {m.id: m.server.gpu for m in alive if m.server}
        self._servers.standby.follow({m.id: m.channel for m in alive}, gpus)

    def _gpus(self) -> list[int]:
        """Return for which GPUs servers should stand by."""
        options, members = self._servers.options, self._servers.members.values()
        if not self._servers.plan.protect or options.standby == "none":
            return []
        in_use = {m.server.gpu for m in members if m.server and m.server_alive}
        both = options.standby == "all"
        if not options.real_gpus:  # they differ in nothing
            return [standby.ANY] * (options.spares + (len(in_use) if both else 0))
        return self._servers.gpus.free(in_use) + (sorted(in_use) if both else [])
