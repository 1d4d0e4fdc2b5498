"""Servers and what they say, as agents and the head tell each other of them."""

from __future__ import annotations

import base64
from typing import Any

from pyft.hosts.wire import checked
from pyft.hosts.wire.link import LinkError
from pyft.recovery.communicators import HEARD
from pyft.wire import messages as wire
from pyft.wire import packet
from pyft.wire.message import Message

IDS = 1 << 24  # that a place can have
ENDED, MAKING, MADE = range(3)  # what a rank is in a communicator
DEAD, RECOVERS, WORKS = range(3)  # what a server is
OF_SERVERS = (*HEARD, wire.Suspect)
TO_SERVERS = (wire.DoExport, wire.DoReplace, wire.Export, wire.Join, wire.Left)


def as_text(message: Message) -> str:
    """Return a message of or to a server as it travels between hosts."""
    return base64.b64encode(packet.pack(message)).decode()


def message_of(said: dict[str, Any], kinds: tuple[type[Message], ...]) -> Message:
    """Return what `as_text` was given; raise LinkError if it is damaged, or of no such kind."""
    try:
        message = packet.unpack(checked.data(said, "data"))
    except ValueError as error:
        raise LinkError(str(error)) from None
    if not isinstance(message, kinds):
        raise LinkError(f"a message [{type(message).__name__}] is not relayed")
    return message
