"""What happens to a job's servers (events) and what is to be done about it (actions).

A server is named by its rank's id and its epoch: epochs of a job only grow, so a message of a
server that was replaced meanwhile names nothing and has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyft.recovery.classify import Fault
from pyft.wire.layout import ReplayMode as Mode
from pyft.wire.message import Message


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
    message: Message


@dataclass(frozen=True)
class ClientGone:
    """The client has ended: nothing needs its server."""

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


@dataclass(frozen=True)
class Disputed:
    """An audit has found something else than a rank has at the cut of this step."""

    id: int
    epoch: int
    step: int


@dataclass(frozen=True)
class Audited:
    """The cut of this step may become the line of a rank, as far as audits go."""

    id: int
    epoch: int
    step: int


OfARank = Exited | Suspected | Received | ClientGone | Left | Disputed | Audited
Event = Attached | Due | Replace | Drain | AddSpare | OfARank


# ---- actions -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Start:
    """Start a server; its predecessor is dead.

    `entry`: of the cut from which it has to start; 0: of any that it finds. `arbitrates`: the cut
    about whose contents its replay decides; 0: none. `together`: how many ranks go back.
    """

    id: int
    epoch: int
    gpu: int
    mode: Mode
    entry: int = 0
    arbitrates: int = 0
    together: int = 1


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
    message: Message


@dataclass(frozen=True)
class Audit:
    """Audit a rank from its line, whose cut is entry `since`, to the cut of this step; Audited follows."""

    id: int
    epoch: int
    step: int
    entry: int
    since: int


@dataclass(frozen=True)
class Unaudited:
    """The rank could not wait for that: nothing that an auditor says of this cut counts."""

    id: int
    step: int


@dataclass(frozen=True)
class Timer:
    """Give `Due(what)` back after some time, whose length `what[0]` names."""

    what: tuple[int | str, ...]


@dataclass(frozen=True)
class Refuse:
    """Tell the operator why an order cannot be carried out."""

    text: str


Action = Start | Kill | Wait | GiveUp | Live | Send | Audit | Unaudited | Timer | Refuse
