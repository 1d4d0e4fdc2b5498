"""What a decision is: an entry for the ledger, and the messages that follow from it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from pyft.hosts.head.holders import Topology
from pyft.hosts.head.places import Facts
from pyft.recovery.images import HOLD_S

ABSENT_S = 20.0  # for the next agent of a place


class Phase(enum.Enum):
    """What is under way."""

    RUN = "run"
    HOLD = "hold"
    DUMP = "dump"
    BACK = "back"
    OVER = "over"


@dataclass(frozen=True)
class Write:
    """This is decided: it has to be in the ledger before what follows is done."""

    entry: dict[str, Any]


@dataclass(frozen=True)
class Say:
    """A message. `to`: ("agent", place), ("host", place) or ("spare", name)."""

    to: tuple[str, int | str]
    kind: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tell:
    """A sentence for the user."""

    sentence: str


Action = Write | Say | Tell


@dataclass
class Pending:
    """An image whose copies travel. `holders`: the hosts that are to have each place's."""

    number: int
    step: int
    holders: dict[int, list[str]]
    since: float  # when something of it has arrived last


class Decisions:
    """All that is decided for the places of a job, in its order.

    `lease`: seconds; `every`: seconds between images, 0: by their cost; `copies`: of each image, in as
    many other failure domains. `mttf_s`: see between_s().
    """

    def __init__(
        self,
        facts: Facts,
        lease: float,
        every: float = 0.0,
        now: float = 0.0,
        copies: int = 1,
        topology: Topology | None = None,
        mttf_s: float = 0.0,
    ) -> None:
        self.facts = facts
        self.lease, self.every, self.mttf_s = lease, every, mttf_s
        self.copies, self.topology = copies, topology or Topology()
        self.phase = Phase.RUN if facts.is_back else Phase.BACK
        self.step = 0  # of the hold
        self.now = now  # of the last look
        self.passed = 0  # in a row
        self.passed_why = ""  # the last one
        self._stays = False  # all stand still until the copies of the image have arrived
        self._hold_s = HOLD_S
        self.pending: Pending | None = None
        self._told_out: set[tuple[int, str]] = set()  # place and host without a copy of it
        self._since = self._next = now
        self._prepares_until: float | None = None  # pages are written while all run; None: none are
        self._again = now  # when a drain may have the next image, after one that was passed over
        self._makers: dict[int, tuple[int, int]] = {}  # key -> place and client
        self._waiting: dict[int, list[tuple[int, int]]] = {}
        self._actions: list[Action] = []
        for place in facts.places.values():
            place.lease = now + lease + ABSENT_S  # after a new head all say where they are
        if all(place.code is not None for place in facts.places.values()):
            self.phase = Phase.OVER

    def taken(self) -> list[Action]:
        """Return what has been decided since the last time."""
        taken, self._actions = self._actions, []
        return taken

    def _write(self, kind: str, **values: Any) -> None:
        entry = {"kind": kind, **values}
        self.facts.apply(entry)
        self._actions.append(Write(entry))

    def _say(self, to: tuple[str, int | str], kind: str, **values: Any) -> None:
        self._actions.append(Say(to, kind, values))

    def _say_spares(self, kind: str, **values: Any) -> None:
        for name in self.facts.spares:
            self._say(("spare", name), kind, **values)

    def _say_all(self, kind: str, **values: Any) -> None:
        for number in self.facts.places:
            self._say(("agent", number), kind, **values)
