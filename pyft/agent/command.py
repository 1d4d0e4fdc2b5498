"""The command: the process that the user wants, its end, and why the job stops before that."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from pyft.agent.process import losses, messages
from pyft.agent.supervisor.children import COMMAND
from pyft.agent.supervisor.link import Handover, SupervisorLink
from pyft.errors import CommandError

NOTE = "job"
MOST_ENDED = 1024


class Command:
    """The supervisor's child of that name, whichever agent has had it started."""

    def __init__(self, supervisor: SupervisorLink, meta: dict[str, Any]) -> None:
        self._supervisor = supervisor
        self._meta = meta  # kept for the next agent as well
        self.pid = 0
        self.ended: dict[int, int] = {}  # pid -> status, of the supervisor's last children
        self.stop_reason = ""
        self.signalled = False  # the user wants it to end
        self.failed = False  # pyft cannot go on with it, and has it end before it would

    def adopt(self, handover: Handover) -> None:
        """Go on where the agent before has stopped; for the first one: at the beginning."""
        kept = handover.notes.get(NOTE, {})
        self._meta |= kept.get("meta", {})
        self.stop_reason = self.stop_reason or kept.get("stop_reason", "")
        self.signalled = kept.get("signalled", False)
        self.failed = kept.get("failed", False)
        for process in handover.processes.values():
            if process.name == COMMAND:
                self.pid = process.pid
            if process.status is not None:
                self.ended[process.pid] = process.status

    def keep(self) -> None:
        """Keep for the next agent what cannot be seen."""
        note = {"meta": self._meta, "stop_reason": self.stop_reason}
        self._supervisor.keep(NOTE, note | {"signalled": self.signalled, "failed": self.failed})

    def fail(self, why: str) -> None:
        """Have it end, as pyft cannot go on with it."""
        self.failed = self.failed or not (self.has_ended or self.stop_reason or self.signalled)
        self.stop_reason = self.stop_reason or why

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; raise CommandError when that is impossible."""
        try:
            self.pid, _ = self._supervisor.start(COMMAND, arguments, environment)
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            why = os.strerror(error.errno or 5)
            raise CommandError(f"cannot start [{arguments[0]}]: {why}", code) from None

    def signal(self, number: int, *, had: bool = False) -> None:
        """Pass on a signal of the user's, which need not be a wish that it ends.

        `had`: the command has it from its terminal.
        """
        if number in losses.ASKED and not self.signalled:
            self.signalled = True
            self.keep()
        if not had:
            self._supervisor.kill(self.pid, number)

    def process_ended(self, pid: int, status: int) -> None:
        """Take how a child of the supervisor has ended; of those long before nothing is asked."""
        self.ended.pop(pid, None)  # of another process with that number
        self.ended[pid] = status
        if len(self.ended) > MOST_ENDED:
            del self.ended[next(one for one in self.ended if one != self.pid)]

    @property
    def has_ended(self) -> bool:
        """Say whether its status is known."""
        return self.pid in self.ended

    @property
    def exit_code(self) -> int:
        """Return what a shell would see, as after SIGKILL if its status is not known.

        A script may take SIGTERM for a wish, and end with 0: where pyft has failed that is no success.
        """
        return messages.exit_code(self.ended.get(self.pid, signal.SIGKILL)) or int(self.failed)
