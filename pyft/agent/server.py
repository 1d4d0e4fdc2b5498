"""One server process: how it is started, spoken to and ended."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyft.agent import protocol
from pyft.agent.channel import Channel
from pyft.agent.keeper_link import KeeperLink, Process
from pyft.recovery import events

NAME = "server"  # for the keeper


@dataclass
class Server:
    """Belongs to one member, for one epoch."""

    pid: int
    socket: socket.socket  # to the server
    epoch: int
    gpu: int
    keeper: KeeperLink
    started: float = field(default_factory=time.monotonic)
    status: int | None = None  # of wait()
    asked_to_end: bool = False
    settings: str = ""  # what the attach reply changes in its environment

    @classmethod
    def spawn(
        cls,
        keeper: KeeperLink,
        program: Path,
        environment: Mapping[str, str],
        epoch: int,
        gpu: int,
    ) -> Server:
        """Start a process that waits for its channel; raise OSError when that is impossible."""
        pid, ours = keeper.start(NAME, [str(program)], environment)
        assert ours is not None
        return cls(pid, ours, epoch, gpu, keeper)

    @classmethod
    def adopt(cls, keeper: KeeperLink, process: Process, note: Mapping[str, Any]) -> Server:
        """Take over a process that an agent before this one has started."""
        assert process.socket is not None
        where = (note["epoch"], note["gpu"])
        return cls(process.pid, process.socket, *where, keeper, status=process.status)

    def introduce(self, channel: Channel) -> None:
        """Give the server its memory. Who is dead already is noticed by the agent's loop."""
        who = (channel.device, channel.client_pid, self.pid, self.epoch)
        with contextlib.suppress(OSError), channel.server_fds() as fds:
            reply = protocol.pack_reply(*who, channel.sizes, self.settings)
            socket.send_fds(self.socket, [reply], fds)

    def send(self, message: events.Send) -> bool:
        """Send one message; say whether the server could take it."""
        rank, code = message.rank, message.code
        data = protocol.pack_message(message.kind, message.key, rank, code, message.payload)
        try:
            self.socket.send(data, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def send_store(self, owner: int, attempt: int, fd: int) -> None:
        """Answer WANT_STORE; without a descriptor if there is none."""
        data = protocol.pack_message(events.Message.STORE, owner, attempt, 0, b"")
        with contextlib.suppress(OSError):  # who does not take it is dead
            socket.send_fds(self.socket, [data], [fd] if fd >= 0 else [], socket.MSG_DONTWAIT)

    def receive(self, id: int) -> events.Received | None:
        """Return the next message as an event of member `id`; None when there is none now.

        It stays there until `taken`: should the agent die meanwhile, the next one finds it.
        Raise ConnectionError at the end of the connection, ValueError at a damaged message.
        """
        size = protocol.MESSAGE.size + protocol.MAX_MESSAGE_PAYLOAD + 1
        try:
            data = self.socket.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError
        kind, key, rank, code, payload = protocol.unpack_message(data)
        return events.Received(id, self.epoch, events.Message(kind), key, rank, code, payload)

    def taken(self) -> None:
        """Take the message away that was received last: what follows from it is kept."""
        with contextlib.suppress(OSError):
            self.socket.recv(1, socket.MSG_DONTWAIT)

    @property
    def alive(self) -> bool:
        """Say whether its death has not been confirmed yet."""
        return self.status is None

    def ask_to_end(self) -> None:
        """Shut down the socket, of which the keeper has a copy: the server ends when it sees that."""
        self.asked_to_end = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def kill(self) -> None:
        """End the process."""
        if self.alive:
            self.keeper.kill(self.pid, signal.SIGKILL)
