"""A member of a job: one client process on one device, its channel, and its server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyft.agent import channel as channels
from pyft.agent import messages, process_tree, protocol
from pyft.agent.channel import Channel
from pyft.agent.options import JobOptions, server_environment
from pyft.agent.protocol import AttachRequest
from pyft.errors import AttachError

GOODBYE = 9
GOODBYE_BYTES = 64  # with its body
_HEADER = struct.Struct("<IHHQ")


@dataclass
class Member:
    """Lives from attach until the trace is saved."""

    channel: Channel
    connection: socket.socket  # to the client
    server_socket: socket.socket
    server_pid: int
    native_dir: Path
    server_status: int | None = None  # of wait()
    client_gone: bool = False  # its connection has ended
    client_dead: bool = False  # its process has ended
    saved: bool = False

    @classmethod
    def start(
        cls, request: AttachRequest, connection: socket.socket, options: JobOptions, epoch: int
    ) -> Member:
        """Create the channel, start the server, and send the memory to both."""
        if request.device >= options.devices:
            raise AttachError(
                f"device [{request.device}] does not exist: the job has [{options.devices}]", 19
            )
        channel = Channel.create(request, epoch, request.environment)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = _spawn_server(request, options, theirs)
        except OSError as error:
            channel.close()
            ours.close()
            raise AttachError(f"the server cannot be started: {error}", error.errno or 5) from None
        finally:
            theirs.close()
        member = cls(channel, connection, ours, pid, options.native_dir)
        member._introduce()
        return member

    def _introduce(self) -> None:
        who = (self.channel.device, self.channel.client_pid, self.server_pid, self.channel.epoch)
        sizes = self.channel.sizes
        with contextlib.suppress(OSError):  # whoever is gone already is noticed by the loop
            with self.channel.server_fds() as fds:
                socket.send_fds(self.server_socket, [protocol.pack_reply(*who, sizes)], fds)
            reply = protocol.pack_reply(*who, replace(sizes, store=0))
            socket.send_fds(self.connection, [reply], self.channel.client_fds())

    @property
    def who(self) -> str:
        """The client in words."""
        return f"client [pid {self.channel.client_pid}, rank {self.channel.rank}]"

    def said_goodbye(self) -> bool:
        """Say whether the last entry of the ring is the client's goodbye mark."""
        header = channels.log_header(self.channel.log_fd)
        if header["appended"] < GOODBYE_BYTES or not header["ring_bytes"]:
            return False
        at = header["ring_offset"] + (header["appended"] - GOODBYE_BYTES) % header["ring_bytes"]
        raw = os.pread(self.channel.log_fd, _HEADER.size, at)
        if len(raw) < _HEADER.size:
            return False
        size, call, _, seq = _HEADER.unpack(raw)
        # The number guards against bytes of another entry that look like the mark.
        return (size, call, seq) == (GOODBYE_BYTES, GOODBYE, header["next_seq"] - 1)

    def stop_waiting(self) -> None:
        """Take a client that has closed its connection for dead, even if its process is not."""
        self.client_dead = True

    def ask_server_to_end(self) -> None:
        """Close the server's socket: it ends when it sees that."""
        self.server_socket.close()

    def kill_server(self) -> None:
        """End a server that does not end by itself."""
        if self.server_status is None:
            process_tree.send([self.server_pid], signal.SIGKILL)

    def death_sentence(self) -> str:
        """Describe the server's death for the client and the user."""
        assert self.server_status is not None
        return (
            f"the server [pid {self.server_pid}] of device [{self.channel.device}] "
            f"{messages.status_text(self.server_status)} while it worked on entry "
            f"[{self.channel.dispatching_seq()}] of {self.who}"
        )

    def save(self, folder: Path) -> dict[str, Any]:
        """Save the trace, release the memory, and return the entry for meta.json."""
        path = folder / f"{self.channel.name}.ring"
        header = channels.log_header(self.channel.log_fd)
        entry = self.describe() | {"file": path.name, "goodbye": self.said_goodbye(), **header}
        entry["calls"] = self.channel.call_counts(self.native_dir)
        if self.server_status is not None:
            entry["server_ended"] = messages.status_text(self.server_status)
        try:
            channels.save_log(self.channel.log_fd, path)
        except OSError as error:
            messages.say(f"the trace [{path}] cannot be saved: {os.strerror(error.errno or 5)}")
            entry["file"] = None
        self.channel.close()
        self.server_socket.close()
        self.connection.close()
        self.saved = True
        return entry

    def describe(self) -> dict[str, Any]:
        """Return what identifies the member, for meta.json."""
        return {
            "name": self.channel.name,
            "rank": self.channel.rank,
            "pid": self.channel.client_pid,
            "device": self.channel.device,
            "epoch": self.channel.epoch,
            "server_pid": self.server_pid,
            "log_fd": self.channel.log_fd,
            "control_fd": self.channel.control_fd,
        }


def _spawn_server(request: AttachRequest, options: JobOptions, theirs: socket.socket) -> int:
    agent = os.getpid()
    fd = theirs.fileno()
    process = subprocess.Popen(
        [str(options.native_dir / "pyft-server")],
        env=server_environment(options, request.environment, request.device, fd),
        stdin=subprocess.DEVNULL,
        pass_fds=(fd,),
        preexec_fn=lambda: process_tree.die_with_parent(signal.SIGKILL, agent),
    )
    process.returncode = 0  # reaped by the agent's waitpid(-1), not by this object
    return process.pid
