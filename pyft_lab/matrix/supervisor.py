"""What is done when ranks end: a state machine without processes, clocks or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Action(str, Enum):
    """What the runner does next."""

    WAIT = "wait"
    END_OTHERS = "end others"  # a rank has failed: the others cannot go on without it
    LAUNCH = "launch"
    LAUNCH_ONE = "launch one"  # a rank that has failed; the others run
    DONE = "done"
    GIVE_UP = "gave up"
    TIMED_OUT = "timed out"


@dataclass
class Supervisor:
    """Decides by exit codes (None: the rank runs) and the time that a run has had."""

    max_restarts: int
    timeout_s: float
    attempt: int = 0
    finished: Action | None = None
    one_by_one: bool = False  # a rank that has failed is started anew, and no other

    def next(self, codes: Sequence[int | None], elapsed_s: float) -> Action:
        """Return what to do, given the ranks of the current attempt."""
        if self.finished:
            return self.finished
        if elapsed_s > self.timeout_s:
            return self.end(Action.TIMED_OUT)
        if all(code == 0 for code in codes):
            return self.end(Action.DONE)
        failed = any(code not in (None, 0) for code in codes)
        if not failed:
            return Action.WAIT
        if any(code is None for code in codes) and not self.one_by_one:
            return Action.END_OTHERS
        if self.attempt >= self.max_restarts:
            return self.end(Action.GIVE_UP)
        self.attempt += 1
        return Action.LAUNCH_ONE if self.one_by_one else Action.LAUNCH

    def end(self, action: Action) -> Action:
        self.finished = action
        return action
