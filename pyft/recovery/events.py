"""What happens to a job's servers (events) and what is to be done about it (actions).

A server is named by its rank's id and its epoch: epochs of a job only grow, so a message of a
server that was replaced meanwhile names nobody and has no effect.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pyft.recovery.classify import Fault


class Mode(enum.IntEnum):
    """Mirror of pyft::ring::ReplayMode."""

    NORMAL = 0
    SERIAL = 1
    DELIVER = 2


class Message(enum.IntEnum):
    """Mirror of pyft::ring::MessageKind."""

    LIVE = 1
    WANT_EXPORT = 2
    FRESH = 3
    EXPORTED = 4
    REPLACED = 5
    MADE = 6
    ENDED = 7
    SUSPECT = 8
    CAPTURED = 9
    WANT_ID = 11
    LINE = 12
    HELD = 13
    WANT_STORE = 14
    WITHDRAW = 15
    SHORT = 16
    GIVEN_UP = 17
    SPILLED = 18
    MAKING = 19
    WANT_PEER = 20
    BROKEN = 21
    MINTED = 22
    PACE = 24
    FAULT = 30
    DO_EXPORT = 101
    DO_REPLACE = 102
    EXPORT = 103
    JOIN = 104
    INJECT = 105
    SETTLED = 106
    MADE_AS = 107
    DROPPED = 108
    STORE = 109
    MODULES = 110
    GIVE_UP = 111
    ROOM = 112
    SPILL = 113
    PEER = 114
    LEND = 115
    LEFT = 116
    PACE_OF_OTHERS = 118
    WANT_MEMORY = 201  # these two between servers
    MEMORY = 202


# Codes of WANT_EXPORT, proxy/ring/attach.h.
FROM_RECORDS, LOST_MEETING, DIVIDING = 0, 1, 2
# In the place of a rank, for LEFT: who has made the unique id.
MINTER = (1 << 64) - 1
# In the place of a result code, for EXPORT.
NOBODY_LIVES = (1 << 64) - 1  # all others are dead as well, and will join who asks first
OTHERS_ENDED = (1 << 64) - 2  # all others have ended it


# ---- events --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Attached:
    """A client wants a server for `device`."""

    id: int
    rank: int
    device: int


@dataclass(frozen=True)
class Exited:
    """A server's death is confirmed: nothing of it can write any more."""

    id: int
    epoch: int
    fault: Fault


@dataclass(frozen=True)
class Suspected:
    """A server has to be ended."""

    id: int
    epoch: int
    fault: Fault


@dataclass(frozen=True)
class Received:
    """A server has said something."""

    id: int
    epoch: int
    kind: Message
    key: int = 0
    rank: int = 0
    code: int = 0
    payload: bytes = b""


@dataclass(frozen=True)
class ClientGone:
    """The client has ended: nobody needs its server."""

    id: int


@dataclass(frozen=True)
class Left:
    """The client has ended, and so has its last server: nothing of this rank comes any more."""

    id: int


@dataclass(frozen=True)
class Due:
    """A deadline that a Timer action has asked for has passed."""

    what: tuple[int | str, ...]


@dataclass(frozen=True)
class Replace:
    """An operator wants a rank on a new server, on `gpu` if that is 0 or more."""

    id: int
    gpu: int = -1


@dataclass(frozen=True)
class Drain:
    """An operator wants a GPU free and unused."""

    gpu: int


@dataclass(frozen=True)
class AddSpare:
    """An operator has brought a GPU, or says that one is well again."""

    gpu: int


Event = (
    Attached | Exited | Suspected | Received | ClientGone | Left | Due | Replace | Drain | AddSpare
)


# ---- actions -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Start:
    """Start a server; its predecessor is dead."""

    id: int
    epoch: int
    gpu: int
    mode: Mode


@dataclass(frozen=True)
class Kill:
    """End a server by SIGKILL; Exited follows."""

    id: int
    epoch: int


@dataclass(frozen=True)
class Wait:
    """Let the client wait (status kRecovering) and tell it for what."""

    id: int
    text: str


@dataclass(frozen=True)
class GiveUp:
    """The client's calls return an error from now on (status kServerDead)."""

    id: int
    text: str


@dataclass(frozen=True)
class Live:
    """The rank works again."""

    id: int
    epoch: int


@dataclass(frozen=True)
class Send:
    """Tell a server something."""

    id: int
    epoch: int
    kind: Message
    key: int = 0
    rank: int = 0
    code: int = 0
    payload: bytes = b""


@dataclass(frozen=True)
class Timer:
    """Give `Due(what)` back after some time, whose length `what[0]` names."""

    what: tuple[int | str, ...]


@dataclass(frozen=True)
class Refuse:
    """Tell the operator why an order cannot be carried out."""

    text: str


Action = Start | Kill | Wait | GiveUp | Live | Send | Timer | Refuse
