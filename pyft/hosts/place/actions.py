"""What the head has an agent do with its place, beside the actions of a job of one host."""

from __future__ import annotations

from dataclasses import dataclass

from pyft.recovery.images import Action as LocalAction


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


Action = LocalAction | GoBack | Leave | Fail | Mirror | MadeAs | Relay
