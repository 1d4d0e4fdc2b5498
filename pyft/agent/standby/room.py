"""Memory that servers which stand by hold on GPUs of the job, given back when a program has none.

They have loaded modules beforehand, which the program must not notice: its server asks before it
says that memory is out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyft.agent.members.server import Server
from pyft.agent.process.loop import Loop
from pyft.agent.standby.standby import Standby
from pyft.wire import messages as wire


@dataclass
class Question:
    """A server that waits until others have given memory back; it does not wait for ever."""

    server: Server
    number: int
    owing: set[int]  # processes


class Room:
    """Which server has asked which one for memory."""

    def __init__(self, standby: Standby, real_gpus: Sequence[str], loop: Loop) -> None:
        self._standby = standby
        self._gpus = real_gpus
        self._loop = loop
        self._questions: list[Question] = []
        self._heard: dict[int, Server] = {}  # by process: those that have been asked

    def wanted(self, server: Server, number: int) -> None:
        """Take MemoryPressure: have all that stand by on the same GPU give up their modules."""
        holders = [one for one in self._standby.holders() if self._share(one.gpu, server.gpu)]
        asked = [one for one in holders if one.send(wire.GiveUp())]
        for one in asked:
            if one.pid not in self._heard:
                self._heard[one.pid] = one
                self._loop.watch(one.socket, self._reader(one))
        if not asked:
            server.send(wire.MemoryFreed(number))
        else:
            self._questions.append(Question(server, number, {one.pid for one in asked}))

    def given_up(self, server: Server) -> None:
        """Take GivenUp, also of a server that works meanwhile."""
        server.holds, server.gave_up = False, True
        self._owes_nothing(server.pid)

    def taken(self, server: Server) -> None:
        """Leave a server to the member that has it now, by way of which comes what it owes."""
        if self._heard.pop(server.pid, None):
            self._loop.forget(server.socket)

    def gone(self, pid: int) -> None:
        """Note that a process has ended. Its connection is open still."""
        if pid in self._heard:
            self.taken(self._heard[pid])
        self._owes_nothing(pid)

    def _owes_nothing(self, pid: int) -> None:
        for question in list(self._questions):
            question.owing.discard(pid)
            if not question.owing:
                self._questions.remove(question)
                question.server.send(wire.MemoryFreed(question.number, freed=True))

    def _share(self, one: int, other: int) -> bool:
        return self._gpus[one] == self._gpus[other]

    def _reader(self, server: Server) -> Callable[[], None]:
        def read() -> None:
            try:
                event = server.receive(-1)
            except (OSError, ConnectionError, ValueError):
                self.taken(server)  # its end is reported by wait()
                return
            if event and isinstance(event.message, wire.GivenUp):
                self.taken(server)
                self.given_up(server)
            server.taken()

        return read
