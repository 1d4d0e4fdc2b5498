"""What the head is told of a place's servers, and what it orders about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyft.wire.message import Message


@dataclass(frozen=True)
class Tell:
    """A server is told something. `repair`: the number of its own repair, 0: it is of another one."""

    place: int
    id: int
    epoch: int
    message: Message
    repair: int = 0


@dataclass(frozen=True)
class Doubt:
    """A server has to be replaced. `sign`: of pyft.recovery.classify."""

    place: int
    id: int
    epoch: int
    sign: str
    why: str


@dataclass(frozen=True)
class Look:
    """An agent is to pass on all that its servers have said, and then to say so."""

    place: int
    number: int


Order = Tell | Doubt | Look


@dataclass(frozen=True)
class Declared:
    """What an agent knows of its place.

    `servers`: id, epoch, state, whether it has left. `members`: key, rank, id, epoch, state, last
    repair. `minted`: key, id. `broken`: key, rank.
    """

    servers: list[list[int]] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    minted: list[list[int]] = field(default_factory=list)
    broken: list[list[int]] = field(default_factory=list)
