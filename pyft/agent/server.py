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

from pyft.agent import protocol, untrusted
from pyft.agent.channel import Channel
from pyft.agent.keeper_link import KeeperLink, Process
from pyft.recovery import events

NAME = "server"  # for the keeper


@dataclass(frozen=True)
class LastWords:
    """Why a server ended, as it has said itself (ring/attach.h: kFault)."""

    kind: int
    code: int
    seq: int
    text: str

    @classmethod
    def of(cls, event: events.Received) -> LastWords:
        """Return what a message says; its text may quote what a client has written."""
        code = (event.rank & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
        return cls(event.key, code, event.code, untrusted.text(event.payload))


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
    words: LastWords | None = None  # its last ones
    settings: str = ""  # what the attach reply changes in its environment
    # While it stands by: members whose modules it loads, and whether these take memory of its GPU.
    followed: set[int] = field(default_factory=set)
    holds: bool = False
    gave_up: bool = False

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
        words = LastWords(*note["words"]) if note.get("words") else None
        return cls(process.pid, process.socket, *where, keeper, status=process.status, words=words)

    def introduce(self, channel: Channel) -> None:
        """Give the server its memory. Who is dead already is noticed by the agent's loop."""
        who = (channel.device, channel.client_pid, self.pid, self.epoch)
        with contextlib.suppress(OSError), channel.server_fds() as fds:
            reply = protocol.pack_reply(*who, channel.sizes, self.settings)
            socket.send_fds(self.socket, [reply], fds)

    def send(self, message: events.Send) -> bool:
        """Send one message; say whether the server could take it."""
        return self.tell(message.kind, message.key, message.rank, message.code, message.payload)

    def tell(self, kind: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = b"") -> bool:
        """Do the same with one in parts."""
        try:
            data = protocol.pack_message(kind, a, b, c, payload)
            self.socket.send(data, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def follow(self, id: int, channel: Channel) -> None:
        """Have a server that stands by keep up with the modules of a member."""
        data = protocol.pack_message(events.Message.MODULES, id, 0, 0, b"")
        with contextlib.suppress(OSError), channel.read_only_log() as fd:  # else the next time
            self._send_fds(data, [fd])
            self.followed.add(id)
            self.holds = True

    def send_store(self, owner: int, attempt: int, fd: int) -> None:
        """Answer WANT_STORE; without a descriptor if there is none."""
        data = protocol.pack_message(events.Message.STORE, owner, attempt, 0, b"")
        with contextlib.suppress(OSError):  # who does not take it is dead
            self._send_fds(data, [fd] if fd >= 0 else [])

    def send_peer(self, attempt: int, fd: int) -> None:
        """Answer WANT_PEER; without a descriptor if there is none."""
        data = protocol.pack_message(events.Message.PEER, attempt, 0, 0, b"")
        with contextlib.suppress(OSError):  # who does not take it is dead
            self._send_fds(data, [fd] if fd >= 0 else [])

    def lend(self, fd: int) -> bool:
        """Bring a borrower; say whether the server could take it."""
        try:
            self._send_fds(protocol.pack_message(events.Message.LEND, 0, 0, 0, b""), [fd])
        except OSError:
            return False
        return True

    def _send_fds(self, data: bytes, fds: list[int]) -> None:
        """Do not wait for room, as socket.send_fds does, which ignores its flags."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        self.socket.sendmsg([data], [rights] if fds else [], socket.MSG_DONTWAIT)

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
