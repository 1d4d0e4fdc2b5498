"""One rank of a job, as the coordinator (plan.py) sees it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pyft.recovery.blame import History
from pyft.recovery.classify import Fault
from pyft.recovery.events import Mode


class State(enum.Enum):
    """Where a rank is."""

    RUNNING = "running"
    FENCING = "fencing"  # its server is being ended
    RECOVERING = "recovering"  # a new server restores and replays
    WAITING = "waiting"  # for a GPU
    GIVEN_UP = "given up"
    GONE = "gone"  # the client has ended


@dataclass
class Rank:
    """One client and device."""

    id: int
    rank: int
    device: int
    gpu: int
    epoch: int
    state: State = State.RUNNING
    mode: Mode = Mode.NORMAL
    fault: Fault | None = None  # why it is being ended
    history: History = field(default_factory=History)

    @property
    def has_server(self) -> bool:
        """Say whether a server of this epoch may exist."""
        return self.state in (State.RUNNING, State.FENCING, State.RECOVERING)
