"""One server process: how it is started, spoken to and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyft.agent import process_tree, protocol
from pyft.agent.channel import Channel
from pyft.recovery import events


@dataclass
class Server:
    """Belongs to one member, for one epoch."""

    pid: int
    socket: socket.socket  # to the server
    epoch: int
    gpu: int
    started: float = field(default_factory=time.monotonic)
    status: int | None = None  # of wait()
    asked_to_end: bool = False
    settings: str = ""  # what the attach reply changes in its environment

    @classmethod
    def spawn(cls, program: Path, environment: Mapping[str, str], epoch: int, gpu: int) -> Server:
        """Start a process that waits for its channel; raise OSError when that is impossible."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        agent = os.getpid()
        fd = theirs.fileno()
        try:
            process = subprocess.Popen(
                [str(program)],
                env={**environment, "PYFT_SERVER_FD": str(fd)},
                stdin=subprocess.DEVNULL,
                pass_fds=(fd,),
                preexec_fn=lambda: process_tree.die_with_parent(signal.SIGKILL, agent),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        process.returncode = 0  # reaped by the agent's waitpid(-1), not by this object
        ours.setblocking(False)
        return cls(process.pid, ours, epoch, gpu)

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
            self.socket.send(data)
        except OSError:
            return False
        return True

    def receive(self, id: int) -> events.Received | None:
        """Return the next message as an event of member `id`; None when there is none now.

        Raise ConnectionError at the end of the connection, ValueError at a damaged message.
        """
        try:
            data = self.socket.recv(protocol.MESSAGE.size + protocol.MAX_MESSAGE_PAYLOAD + 1)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError
        kind, key, rank, code, payload = protocol.unpack_message(data)
        return events.Received(id, self.epoch, events.Message(kind), key, rank, code, payload)

    @property
    def alive(self) -> bool:
        """Say whether its death has not been confirmed yet."""
        return self.status is None

    def ask_to_end(self) -> None:
        """Close the socket: the server ends when it sees that."""
        self.asked_to_end = True
        self.socket.close()

    def kill(self) -> None:
        """End the process."""
        if self.alive:
            process_tree.send([self.pid], signal.SIGKILL)
