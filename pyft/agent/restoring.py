"""Puts a job back to an image: ends all of it, gives the memory back, has CRIU restore the processes.

The agent that has done so ends. The next one finds what an agent leaves behind that has died together
with all servers, and takes over as ever (adoption.py). So a restore that is interrupted at any place
is begun again by the next agent: until the last step the note of it stays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyft.agent.channel import page
from pyft.agent.ended_dump import let_go
from pyft.agent.process import messages, process_tree
from pyft.agent.process.awake import AwakeClock
from pyft.agent.process.stopped import kill_all
from pyft.agent.supervisor.children import RESTORE
from pyft.agent.supervisor.link import SupervisorLink
from pyft.images import criu, leftovers, memory, reopened
from pyft.images.appended import Log

NOTE = "restoring"
END_S = 5.0  # for what is killed to be gone, with its number
RESTORE_S = 60.0  # for CRIU
HELD_S = 60.0  # a restored client waits so long for the next agent
LOOK_S = 0.01
MOST_TRIES = 3  # of one restore, where CRIU fails: what is in its way may be over the next time


class RestoreError(Exception):
    """The job cannot be put back; it ends."""


class CriuError(RestoreError):
    """CRIU has failed, or was ended."""


class Restoring:
    """One restore. `fds`: the memory of each client in the image, by the client's id."""

    def __init__(
        self,
        supervisor: SupervisorLink,
        program: Path,
        record: dict[str, Any],
        fds: dict[int, list[int]],
        ended: Callable[[], dict[int, int]],
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        """`gone`: is called when nothing of the present runs any more."""
        self._supervisor = supervisor
        self._program = program
        self._record = record
        self._fds = fds
        self._gone = gone
        self._ended = ended  # takes what the supervisor says; status by pid, always the same dict

    def run(self) -> None:
        """Do it; raise RestoreError when that is impossible."""
        self._supervisor.keep(NOTE, self._record)
        end_all(self._record["pids"], self._ended)
        self._end_connections()
        self._gone()
        self._cut_logs()
        clients = {int(id): note for id, note in self._record["clients"].items()}
        ours = {id: self._give_back(id, note) for id, note in clients.items()}
        self._restore(clients)
        for id, note in clients.items():
            self._keep(id, note, ours[id])
        self._supervisor.keep("servers", self._record["servers"])
        for name in ("comparison", "shares"):  # of the snapshots in the stores that are back
            if note := self._record.get(name):
                self._supervisor.keep(name, note)
            else:
                self._supervisor.drop(name)
        self._supervisor.drop(NOTE)

    # ---- the present is ended -----------------------------------------------------------------

    def _end_connections(self) -> None:
        """What kernel and CRIU have left of them is in the way of those of the image."""
        wanted = {(local, remote) for local, remote in self._record.get("connections", ())}
        with contextlib.suppress(OSError):  # CRIU says what it cannot restore
            leftovers.end(wanted)
        let_go(wanted)  # a dump that has failed; the agent that knew of it may have died

    def _cut_logs(self) -> None:
        logs = [Log(**note) for note in self._record["logs"]]
        for log in logs:
            if why := log.cut_back():
                raise RestoreError(why)
        if image := self._record.get("reopened"):
            reopened.cut_back(image, logs)

    # ---- the image is given back --------------------------------------------------------------

    def _give_back(self, id: int, note: dict[str, Any]) -> socket.socket:
        """Have the supervisor hold new memory and a new connection; return our end of that."""
        name = note["channel"]["name"]
        until = time.monotonic_ns() + int(HELD_S * 1e9)
        copies = [
            memory.copy_of(fd, f"pyft-{part}-{name}")
            for part, fd in zip(memory.PARTS, self._fds[id], strict=True)
        ]
        page.prepare_for_restore(copies[1], until)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._supervisor.keep(restored_name(id), note, [*copies, theirs.fileno()])
        theirs.close()
        self._fds[id] = copies
        return ours

    def _restore(self, clients: dict[int, dict[str, Any]]) -> None:
        inherit = []
        for id, note in clients.items():
            name, kept = note["channel"]["name"], restored_name(id)
            # The first one is the note; the store is the servers' alone.
            inherit += [(kept, 1 + at, f"/memfd:pyft-{part}-{name}") for at, part in _mapped()]
            inode = self._record["sockets"][str(id)]
            inherit.append((kept, 1 + len(memory.PARTS), f"socket:[{inode}]"))
        folder, root = Path(self._record["folder"]), self._record["root"]
        self._supervisor.forget(root)
        ended = self._ended()  # all of it: what was told later is of processes that run now
        pid = self._supervisor.start_criu(
            RESTORE,
            criu.restore_arguments(self._program, folder),
            root,
            inherit,
            self._record["standard"],
        )
        ended.pop(pid, None)  # of one before it with that number
        clock = AwakeClock()
        deadline = clock.now() + RESTORE_S
        while (status := self._ended().get(pid)) is None:
            if clock.now() > deadline:
                raise CriuError(f"CRIU has not restored the processes within [{RESTORE_S:g}] s")
            time.sleep(LOOK_S)
        self._supervisor.forget(pid)
        if os.WIFSIGNALED(status):
            raise CriuError(f"CRIU {messages.status_text(status)}")
        if status:
            raise CriuError(f"CRIU: {criu.why_failed(folder)}")

    def _keep(self, id: int, note: dict[str, Any], ours: socket.socket) -> None:
        """What the next agent finds of a client."""
        pidfd = os.pidfd_open(note["channel"]["client_pid"])
        fds = [*self._fds[id], ours.fileno(), pidfd]
        self._supervisor.keep(f"client-{id}", note, fds)
        self._supervisor.drop(restored_name(id))
        for fd in (*self._fds[id], pidfd):
            os.close(fd)
        ours.close()


def end_all(pids: list[int], ended: Callable[[], object]) -> None:
    """Kill all that the supervisor has but the agent, and see that these numbers are free."""
    supervisor = os.getppid()
    kill_all(lambda: process_tree.descendants(supervisor, {os.getpid()}))
    clock = AwakeClock()
    deadline = clock.now() + END_S
    while True:
        ended()
        alive = process_tree.descendants(supervisor, {os.getpid()})
        process_tree.send(alive, signal.SIGKILL)
        taken = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not alive and not taken:
            return
        if clock.now() > deadline:
            raise RestoreError(f"[{len(alive)}] processes cannot be ended, {taken} are taken")
        time.sleep(LOOK_S)


def kept_name(number: int, id: int) -> str:
    """Return the name by which the supervisor keeps the memory of a client in an image."""
    return f"image-{number}-client-{id}"


def is_kept(name: str) -> bool:
    """Say whether a name is one of those."""
    return name.startswith("image-")


def restored_name(id: int) -> str:
    """Return the name of what CRIU is given for a client."""
    return f"restored-{id}"


def _mapped() -> list[tuple[int, str]]:
    return [(at, part) for at, part in enumerate(memory.PARTS) if part != "store"]
