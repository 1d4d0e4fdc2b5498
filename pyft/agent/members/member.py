"""A member of a job: one client process on one device, its channel, and its server."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyft import config
from pyft.agent.channel import channel as channels
from pyft.agent.channel import page, protocol
from pyft.agent.channel.channel import Channel
from pyft.agent.channel.protocol import AttachRequest, number_in
from pyft.agent.job.options import JobOptions
from pyft.agent.members.ranks import Claim, place_of
from pyft.agent.members.server import Server
from pyft.agent.process import messages
from pyft.errors import AttachError
from pyft.recovery import redundancy
from pyft.recovery.disputes import Disputes

BUSY_BYTES = 1 << 20  # no program writes so much into a ring to look at a device


@dataclass
class Member:
    """Lives from attach until the trace is saved."""

    id: int
    channel: Channel
    connection: socket.socket  # to the client
    environment: dict[str, str]  # of the client
    native_dir: Path
    server: Server | None = None  # the last one, dead or alive
    servers: int = 0  # started so far
    client_gone: bool = False  # its connection has ended
    client_dead: bool = False  # its process has ended
    saved: bool = False
    given_up: str = ""  # why no further server is started
    pidfd: int = -1  # of the client
    guessed: int = -1  # its rank, as long as nothing says which it is (ranks.py)
    disputes: Disputes = field(default_factory=Disputes)  # executions that have differed
    audited: Counter[str] = field(default_factory=Counter)  # what audits have covered, and have not
    held: tuple[int, int] = (0, 0)  # the place that its rank is from (ranks.py)
    leads: bool = True  # its process works on this device, as far as communicators tell

    @classmethod
    def create(
        cls,
        id: int,
        request: AttachRequest,
        connection: socket.socket,
        options: JobOptions,
        pidfd: int,
        process: int = 1,
    ) -> Member:
        """Create the channel; raise AttachError or ConfigError with the cause if that is impossible.

        A setting of the client that the agent reads later is checked here, where it can be refused.
        """
        if request.device >= options.devices:
            raise AttachError(
                f"device [{request.device}] does not exist: the job has [{options.devices}]", 19
            )
        config.get("PYFT_HEARTBEAT_TIMEOUT_S", request.environment)
        channel = Channel.create(request, 1, request.environment, process)
        if options.protect != "none":
            try:
                channel.add_store(request.environment)
                page.write(channel.control_fd, protect=page.Protect.SNAPSHOT)
            except BaseException:
                channel.close()
                raise
        environment = request.environment
        return cls(id, channel, connection, environment, options.native_dir, pidfd=pidfd)

    @classmethod
    def adopt(cls, note: Mapping[str, Any], fds: list[int], native_dir: Path) -> Member:
        """Take over a client of which an agent before this one made `note` and `fds`."""
        *memory, connection, pidfd = fds
        channel = Channel.adopt(note["channel"], memory)
        link = socket.socket(fileno=connection)
        return cls(note["id"], channel, link, note["environment"], native_dir, pidfd=pidfd)

    def note(self) -> dict[str, Any]:
        """Return what `adopt` needs beside `fds`."""
        return {"id": self.id, "environment": self.environment, "channel": self.channel.note()}

    def fds(self) -> list[int]:
        """Return the descriptors that the next agent needs."""
        return [*self.channel.fds(), self.connection.fileno(), self.pidfd]

    def server_note(self) -> dict[str, Any]:
        """Return what the next agent has to know of the server, which changes more often."""
        server = self.server
        where: dict[str, Any] = {}
        if server:
            where = {"pid": server.pid, "epoch": server.epoch, "gpu": server.gpu}
        if server and server.words:
            where["words"] = astuple(server.words)
        kept: dict[str, Any] = {
            "servers": self.servers,
            "given_up": self.given_up,
            "guessed": self.guessed,
            "held": self.held,
        }
        kept |= {"disputes": self.disputes.note(), "audited": dict(self.audited)}
        return {**where, **kept, "rank": self.channel.rank}

    def adopt_server(self, note: Mapping[str, Any], server: Server) -> None:
        """Take over the server of which an agent before this one made `note`."""
        self.server, self.servers, self.given_up = server, note["servers"], note["given_up"]
        self.channel.epoch = note["epoch"]
        self.channel.rank, self.guessed = note["rank"], note["guessed"]
        self.held = (note["held"][0], note["held"][1])
        self.disputes = Disputes.restored(note["disputes"])
        self.audited = Counter(note["audited"])

    def answer(self) -> None:
        """Send the client its memory; its first server has been started."""
        who = (self.channel.device, self.channel.client_pid, self.server_pid, self.channel.epoch)
        reply = protocol.pack_reply(*who, replace(self.channel.sizes, store=0))
        with contextlib.suppress(OSError):  # a client that is gone is noticed by the loop
            socket.send_fds(self.connection, [reply], self.channel.client_fds())

    @property
    def server_pid(self) -> int:
        """The process id of the present or last server, 0 before the first."""
        return self.server.pid if self.server else 0

    @property
    def server_alive(self) -> bool:
        """Say whether a server process may still run."""
        return self.server is not None and self.server.alive

    @property
    def who(self) -> str:
        """The client in words."""
        return f"client [pid {self.channel.client_pid}, rank {self.channel.rank}]"

    def claim(self) -> Claim:
        """Return what says which rank it is."""
        place = place_of(page.read_one(self.channel.control_fd, "communicator"))
        who = (self.id, self.channel.client_pid, self.channel.device)
        return Claim(*who, self.environment, place, self.guessed, self.held)

    def said_goodbye(self) -> bool:
        """Say whether the last entry of the ring is the client's goodbye mark."""
        return self.channel.said_goodbye()

    def is_main(self) -> bool:
        """Say whether this is the device that a rank works on: it may look at others as well."""
        local = number_in(self.environment, "LOCAL_RANK")
        if local is None:
            return self.leads
        return local == self.channel.device or self.channel.header()["appended"] > BUSY_BYTES

    def drained(self) -> bool:
        """Say whether the server has taken everything that the client has written."""
        appended = self.channel.header()["appended"]
        return page.read_one(self.channel.control_fd, "consumed") >= appended

    def is_gone(self) -> bool:
        """Look whether the client has ended."""
        poller = select.poll()
        poller.register(self.connection, select.POLLRDHUP)
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def stop_waiting(self) -> None:
        """Take a client that has closed its connection for dead, even if its process is not."""
        self.client_dead = True

    def ask_server_to_end(self) -> None:
        """Close the server's socket: it ends when it sees that."""
        if self.server:
            self.server.ask_to_end()

    def kill_server(self) -> None:
        """End a server that does not end by itself."""
        if self.server:
            self.server.kill()

    def death_sentence(self) -> str:
        """Describe the server's death for the client and the user."""
        how = "could not be started"
        if self.server and self.server.status is not None:
            how = messages.status_text(self.server.status)
        return (
            f"the server [pid {self.server_pid}] of device [{self.channel.device}] "
            f"{how} while it worked on entry "
            f"[{self.channel.dispatching_seq()}] of {self.who}"
        )

    def save(self, folder: Path) -> dict[str, Any]:
        """Save the trace, release the memory, and return the entry for meta.json."""
        path = folder / f"{self.channel.label}.ring"
        header = self.channel.header()
        entry = self.describe() | {"file": path.name, "goodbye": self.said_goodbye(), **header}
        entry["calls"] = self.channel.call_counts(self.native_dir)
        entry["store"] = page.store_figures(self.channel.store_fd)
        state = page.read(self.channel.control_fd)
        entry["dmr"] = redundancy.figures(lambda name: getattr(state, name))
        written = header["next_seq"] - 1
        entry["audit"] = redundancy.audit_figures(self.audited.__getitem__, written)
        if self.server and self.server.status is not None:
            entry["server_ended"] = messages.status_text(self.server.status)
        try:
            channels.save_log(self.channel.log_fd, path, self.channel.areas)
        except OSError as error:
            messages.say(f"the trace [{path}] cannot be saved: {os.strerror(error.errno or 5)}")
            entry["file"] = None
        self.channel.close()
        if self.server:
            self.server.socket.close()
        self.connection.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.saved = True
        return entry

    def describe(self) -> dict[str, Any]:
        """Return what identifies the member, for meta.json."""
        return {
            "id": self.id,
            "name": self.channel.label,
            "memory": self.channel.name,
            "rank": self.channel.rank,
            "pid": self.channel.client_pid,
            "process": self.channel.process,
            "device": self.channel.device,
            "gpu": self.server.gpu if self.server else self.channel.device,
            "epoch": self.channel.epoch,
            "server_pid": self.server_pid,
            "log_fd": self.channel.log_fd,
            "control_fd": self.channel.control_fd,
            "store_fd": self.channel.store_fd,
        }
