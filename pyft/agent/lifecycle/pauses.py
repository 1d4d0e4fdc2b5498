"""How long ranks of the job have been recovered: for the deadlines of the program itself.

PyTorch ends a job of which a collective takes longer than the program allows. The clock by which it
measures stands still while a rank is recovered (proxy/client/process/job_clock.h); what it has to know is in
the control page of each client, and in a note for the next agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from pyft.agent.channel import page
from pyft.recovery.rank import Rank, State

NOTE = "pauses"
RECOVERED = frozenset({State.FENCING, State.RECOVERING, State.WAITING})


class Pauses:
    """Recoveries that overlap count once. `keep` keeps a note for the next agent."""

    def __init__(self, keep: Callable[[str, dict[str, Any]], None]) -> None:
        self._keep = keep
        self._total_ns = 0  # of those that are over
        self._since_ns = 0  # when the present one began; 0: none
        self.elsewhere = False  # a rank of another host is being recovered, as the head says

    def follow(self, ranks: Iterable[Rank], control_fds: Callable[[], Iterable[int]]) -> None:
        """Take note of where the ranks are; tell the clients if that changes anything."""
        recovered = self.elsewhere or any(rank.state in RECOVERED for rank in ranks)
        if recovered == bool(self._since_ns):
            return
        now = time.monotonic_ns()
        if recovered:
            self._since_ns = now
        else:
            self._total_ns += now - self._since_ns
            self._since_ns = 0
        self._keep(NOTE, {"total_ns": self._total_ns, "since_ns": self._since_ns})
        for control_fd in control_fds():
            self.tell(control_fd)

    def tell(self, control_fd: int) -> None:
        """Write it into a control page. The client may be reading: meanwhile the version is odd."""
        version = page.read_one(control_fd, "pauses_version") | 1
        page.write(control_fd, pauses_version=version)
        page.write(control_fd, paused_ns=self._total_ns, paused_since=self._since_ns)
        page.write(control_fd, pauses_version=(version + 1) & 0xFFFFFFFF)

    def adopt(self, note: dict[str, Any] | None, control_fds: Iterable[int]) -> None:
        """Go on from what the agent before has kept, which may have told some of the clients."""
        if note:
            self._total_ns, self._since_ns = note["total_ns"], note["since_ns"]
        for control_fd in control_fds:
            self.tell(control_fd)
