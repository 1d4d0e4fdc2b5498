"""Auditors: servers that replay for another one, and write into nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyft import log
from pyft.agent.members.member import Member
from pyft.agent.members.server import LastWords, Server
from pyft.recovery.audits import CANNOT_TELL, NOT_KEPT, Finding, Interval
from pyft.wire import messages as wire

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

LOG = log.logger("agent")
MOST_S = 120.0  # an audit: docs/deadlines.md


@dataclass
class Auditor:
    """One at work, for one interval."""

    servers: Servers
    interval: Interval
    server: Server
    gpu: int
    said: bool = False  # what it has found
    stopped: bool = False  # by us: what it says does not matter any more
    late: bool = False

    @classmethod
    def start(
        cls,
        servers: Servers,
        member: Member,
        interval: Interval,
        gpu: int,
        environment: Mapping[str, str],
    ) -> Auditor:
        """Start a process; raise OSError when that is impossible."""
        about = {**environment, "PYFT_AUDIT": str(interval.entry)}
        where = (interval.epoch, gpu)
        server = Server.spawn(servers.supervisor, servers.program, about, *where)
        LOG.debug(
            "rank [%s]: auditor [pid %d] on GPU [%d], up to entry [%d]",
            *(member.channel.rank, server.pid, gpu, interval.entry),
        )
        server.introduce(member.channel, audits=True)
        return cls(servers, interval, server, gpu)

    def read(self) -> bool:
        """Take one message; say whether there may be another one."""
        try:
            event = self.server.receive(self.interval.id)
        except (OSError, ConnectionError):
            self.servers.loop.forget(self.server.socket)
            return False
        except ValueError as error:
            self.server.taken()
            self.interval.failed.append(str(error))
            return True
        if event is None:
            return False
        self.server.taken()
        self._heard(event.message)
        return True

    def _heard(self, said: wire.Message) -> None:
        if isinstance(said, wire.Fault):
            self.server.words = LastWords.of(said)
        if not isinstance(said, wire.Audited) or said.entry != self.interval.entry or self.said:
            return
        try:
            self.interval.found.append(Finding.of(said, self.gpu))
        except ValueError as error:
            self.interval.failed.append(str(error))
        self.said = True

    def ended(self) -> None:
        """Take in that the process has ended."""
        while self.read():
            pass
        self.servers.loop.forget(self.server.socket)
        self.server.socket.close()
        self.servers.supervisor.forget(self.server.pid)

    def stop(self) -> None:
        """End it."""
        self.stopped = True
        self.server.kill()

    def is_late(self) -> None:
        """It has had all the time there is."""
        if self.servers.audits.knows(self):  # also one that has said all, and does not end
            self.late = True
            self.server.kill()

    @property
    def lacks_collectives(self) -> bool:
        """Say whether it has ended because the result of a collective was not kept."""
        return self._ended_with(NOT_KEPT)

    @property
    def cannot_tell(self) -> bool:
        """Say whether it has ended because only a corrected fault's trace is there to compare with."""
        return self._ended_with(CANNOT_TELL)

    def _ended_with(self, code: int) -> bool:
        return not self.said and bool(self.server.words and self.server.words.code == code)

    @property
    def why(self) -> str:
        """Say why it has found nothing."""
        if self.late:
            return f"it has not ended after [{MOST_S:g} s]"
        return self.server.words.text if self.server.words else "it has ended without a word"
