"""What the head has said about servers of this place: messages, and what is to be done for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyft.hosts.place.actions import Alone, Doubt, Look, OfServers, Recovering, Tell
from pyft.hosts.wire import checked
from pyft.hosts.wire.link import LinkError
from pyft.hosts.wire.servers import TO_SERVERS, message_of

SIGNS = ("communicator", "adopted")  # of a doubt


def action_of(said: dict[str, Any]) -> OfServers:
    """Return what has to be done; raise LinkError at what cannot be."""
    return KINDS[said["kind"]](said)


def _who(said: dict[str, Any]) -> tuple[int, int]:
    return checked.number(said, "client"), checked.number(said, "epoch")


def _look(said: dict[str, Any]) -> Look:
    return Look(checked.number(said, "number"))


def _alone(said: dict[str, Any]) -> Alone:
    return Alone(*_who(said))


def _tell(said: dict[str, Any]) -> Tell:
    return Tell(*_who(said), message_of(said, TO_SERVERS), checked.number(said, "repair"))


def _recovering(said: dict[str, Any]) -> Recovering:
    return Recovering(bool(checked.number(said, "now", 1)))


def _doubt(said: dict[str, Any]) -> Doubt:
    if (sign := checked.name(said, "sign")) not in SIGNS:
        raise LinkError(f"[{sign}] is no sign of a fault")
    return Doubt(*_who(said), sign, checked.text(said, "why"))


KINDS: dict[str, Callable[[dict[str, Any]], OfServers]] = {
    "look": _look,
    "alone": _alone,
    "tell": _tell,
    "doubt": _doubt,
    "recovering": _recovering,
}
