"""What the head has an agent do with its place, beside the actions of a job of one host."""

from __future__ import annotations

from dataclasses import dataclass

from pyft.recovery.images import Action as LocalAction
from pyft.wire.message import Message


@dataclass(frozen=True)
class GoBack:
    """All go back to this image."""

    number: int
    why: str


@dataclass(frozen=True)
class Leave:
    """The place goes on elsewhere from this image: all of it ends here, and the image stays."""

    number: int
    why: str


@dataclass(frozen=True)
class Fail:
    """The job ends."""

    why: str


@dataclass(frozen=True)
class Mirror:
    """The image is copied to other hosts: name, address and port of each."""

    number: int
    where: list[tuple[str, str, int]]


@dataclass(frozen=True)
class MadeAs:
    """Tells a client's server under which id a communicator is made."""

    client: int
    key: int
    made_as: str


@dataclass(frozen=True)
class Relay:
    """A datagram for the relay of this place."""

    data: bytes


@dataclass(frozen=True)
class Alone:
    """The server of a client is replaced here, and all others go on."""

    client: int
    epoch: int


@dataclass(frozen=True)
class Declare:
    """The head has to be told all about the servers of this place."""


@dataclass(frozen=True)
class Look:
    """The head has to be told all that servers have said by now, and then that this was all."""

    number: int


@dataclass(frozen=True)
class Tell:
    """A message for a server, in a repair of its own if that has a number."""

    client: int
    epoch: int
    message: Message
    repair: int


@dataclass(frozen=True)
class Doubt:
    """A server has to be replaced. `sign`: of pyft.recovery.classify."""

    client: int
    epoch: int
    sign: str
    why: str


@dataclass(frozen=True)
class Recovering:
    """Whether a rank of any host is being recovered now."""

    now: bool


OfServers = Alone | Declare | Look | Tell | Doubt | Recovering
Action = LocalAction | GoBack | Leave | Fail | Mirror | MadeAs | Relay | OfServers
