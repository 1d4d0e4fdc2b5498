"""Writes down how far each rank is, every now and then: one JSON object a line, in the job's folder.

The file grows with the logarithm of the job's length: the longer a job runs, the rarer the lines.
Another agent appends to what the one before has written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pyft.agent.channel import untrusted
from pyft.agent.job import job_folder
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop
from pyft.wire.layout import CONTROL_PAGE

FILE = job_folder.TIMELINE
SHORTEST_S = 0.2  # between two looks
LOOKS = 2000  # in the time until now: so long are two apart at least


class Timeline:
    """Looks at the members from `begin` on. Times are seconds since the job's start."""

    def __init__(
        self, folder: Path, loop: Loop, start: float, members: Callable[[], list[Member]]
    ) -> None:
        """`start`: that of the job, as time.monotonic() had it."""
        self._path = folder / FILE
        self._loop, self._start, self._members = loop, start, members
        self._last: dict[int, tuple[int, int, int]] = {}
        self._said = False

    def begin(self) -> None:
        """Look now, and again and again."""
        self._write([{"start_ns": int(self._start * 1e9)}])
        self._again()

    def _again(self) -> None:
        self.look()
        elapsed = time.monotonic() - self._start
        self._loop.after(max(SHORTEST_S, elapsed / LOOKS), self._again)

    def look(self) -> None:
        """Look at all members that there are."""
        members = [member for member in self._members() if not member.saved]
        self._last = {m.id: self._last[m.id] for m in members if m.id in self._last}
        self.look_at(members)

    def look_at(self, members: Iterable[Member]) -> None:
        """Write a line for each of them that has come further."""
        now = round(time.monotonic() - self._start, 3)
        lines = []
        for member in members:
            page = untrusted.first_page(member.channel.control_fd)
            found = CONTROL_PAGE.read(page, "steps", "snapshot_cut")
            steps, snapshot, gpu = found["steps"], found["snapshot_cut"], self._gpu(member)
            if self._last.get(member.id) != (steps, snapshot, gpu):
                self._last[member.id] = (steps, snapshot, gpu)
                line = {"t": now, "id": member.id, "steps": steps, "snapshot": snapshot}
                lines.append(line | {"gpu": gpu})
        if lines:
            self._write(lines)

    def _gpu(self, member: Member) -> int:
        return member.server.gpu if member.server else member.channel.device

    def _write(self, lines: list[dict[str, int | float]]) -> None:
        """Append, in one write: a reader never sees half of a line for long."""
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            if not self._said:
                self._said = True
                messages.say(
                    f"[{self._path}] cannot be written ({error.strerror}): the job goes on, and "
                    "`pyft report` will not show all of its snapshots"
                )
