"""One server process: how it is started, spoken to and ended."""

from __future__ import annotations

import array
import contextlib
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyft.agent.channel import protocol, untrusted
from pyft.agent.channel.channel import Channel
from pyft.agent.process import messages
from pyft.agent.supervisor.link import Process, SupervisorLink
from pyft.recovery import events
from pyft.wire import messages as wire
from pyft.wire import packet

NAME = "server"  # for the supervisor
SO_PEEK_OFF = 42  # of Linux; Python has no name for it


@dataclass(frozen=True)
class LastWords:
    """Why a server ended, as it has said itself (wire.Fault)."""

    kind: int
    code: int
    seq: int
    text: str

    @classmethod
    def of(cls, said: wire.Fault) -> LastWords:
        """Return what a message says; its text may quote what a client has written."""
        return cls(said.fault, said.code, said.entry, untrusted.text(said.payload))


@dataclass
class Server:
    """Belongs to one member, for one epoch."""

    pid: int
    socket: socket.socket  # to the server
    epoch: int
    gpu: int
    supervisor: SupervisorLink
    started: float = field(default_factory=time.monotonic)
    status: int | None = None  # of wait()
    asked_to_end: bool = False
    words: LastWords | None = None  # its last ones
    settings: str = ""  # what the attach reply changes in its environment
    # While it stands by: members whose modules it loads, and whether these take memory of its GPU.
    followed: set[int] = field(default_factory=set)
    holds: bool = False
    gave_up: bool = False

    @classmethod
    def spawn(
        cls,
        supervisor: SupervisorLink,
        program: Path,
        environment: Mapping[str, str],
        epoch: int,
        gpu: int,
    ) -> Server:
        """Start a process that waits for its channel; raise OSError when that is impossible."""
        pid, ours = supervisor.start(NAME, [str(program)], environment)
        assert ours is not None
        return cls(pid, ours, epoch, gpu, supervisor)

    @classmethod
    def adopt(cls, supervisor: SupervisorLink, process: Process, note: Mapping[str, Any]) -> Server:
        """Take over a process that an agent before this one has started."""
        assert process.socket is not None
        where = (note["epoch"], note["gpu"])
        words = LastWords(*note["words"]) if note.get("words") else None
        # The agent before may have died while it looked ahead.
        process.socket.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, -1)
        return cls(
            process.pid, process.socket, *where, supervisor, status=process.status, words=words
        )

    def introduce(self, channel: Channel, audits: bool = False) -> None:
        """Give the server its memory. One that is dead is noticed by the agent's loop.

        `audits`: it only looks at the memory of another one.
        """
        who = (channel.device, channel.client_pid, self.pid, self.epoch)
        reply = protocol.pack_reply(*who, channel.sizes, self.settings)
        with contextlib.ExitStack() as stack:
            try:
                shown = channel.auditor_fds() if audits else channel.server_fds()
                fds = stack.enter_context(shown)
            except OSError as error:  # out of descriptors: the next server may get it
                why = error.strerror
                messages.say(
                    f"the server [pid {self.pid}] does not get its memory: {why}; it is ended"
                )
                self.kill()
                return
            with contextlib.suppress(OSError):
                socket.send_fds(self.socket, [reply], fds)

    def send(self, message: wire.Message) -> bool:
        """Send one message; say whether the server could take it."""
        try:
            self.socket.send(packet.pack(message), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def follow(self, id: int, channel: Channel) -> None:
        """Have a server that stands by keep up with the modules of a member."""
        with contextlib.suppress(OSError), channel.read_only_log() as fd:  # else the next time
            self._send_fd(wire.Modules(id), fd)
            self.followed.add(id)
            self.holds = True

    def send_store(self, owner: int, attempt: int, fd: int) -> None:
        """Answer WantStore; without a descriptor if there is none."""
        with contextlib.suppress(OSError):  # one that does not take it is dead
            self._send_fd(wire.Store(owner, attempt), fd)

    def send_peer(self, attempt: int, fd: int) -> None:
        """Answer WantPeer; without a descriptor if there is none."""
        with contextlib.suppress(OSError):  # one that does not take it is dead
            self._send_fd(wire.Peer(attempt), fd)

    def lend(self, fd: int) -> bool:
        """Bring a borrower; say whether the server could take it."""
        try:
            self._send_fd(wire.Lend(), fd)
        except OSError:
            return False
        return True

    def _send_fd(self, message: wire.Message, fd: int) -> None:
        """Do not wait for room, as socket.send_fds does, which ignores its flags."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
        self.socket.sendmsg(
            [packet.pack(message)], [rights] if fd >= 0 else [], socket.MSG_DONTWAIT
        )

    def receive(self, id: int) -> events.Received | None:
        """Return the next message as an event of member `id`; None when there is none now.

        It stays there until `taken`: should the agent die meanwhile, the next one finds it.
        Raise ConnectionError at the end of the connection, ValueError at a damaged message.
        """
        try:
            flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
            data = messages.behind_reset(lambda: self.socket.recv(packet.MAX_BYTES + 1, flags))
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError
        return events.Received(id, self.epoch, packet.unpack(data))

    def ahead(self, id: int) -> list[events.Received]:
        """Return all messages that have come, and leave them there. Damaged ones are left out."""
        found: list[events.Received] = []
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 0)  # each peek goes one on
            try:
                self._look_through(id, found)
            finally:
                self.socket.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, -1)
        return found

    def _look_through(self, id: int, found: list[events.Received]) -> None:
        while True:
            try:
                event = self.receive(id)
            except ValueError:
                continue
            if event is None:
                return
            found.append(event)

    def taken(self) -> None:
        """Take the message away that was received last: what follows from it is kept."""
        with contextlib.suppress(OSError):
            self.socket.recv(1, socket.MSG_DONTWAIT)

    @property
    def alive(self) -> bool:
        """Say whether its death has not been confirmed yet."""
        return self.status is None

    def ask_to_end(self) -> None:
        """Shut down the socket, of which the supervisor has a copy: the server ends when it sees that."""
        self.asked_to_end = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def kill(self) -> None:
        """End the process."""
        if self.alive:
            self.supervisor.kill(self.pid, signal.SIGKILL)
