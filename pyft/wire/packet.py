"""How a message travels: a header, three words, and its payload (docs/messages.md)."""

from __future__ import annotations

import struct

from pyft.wire.message import Message
from pyft.wire.messages import HEADER_FORMAT, KINDS, MAGIC, MAX_PAYLOAD_BYTES

HEADER = struct.Struct(HEADER_FORMAT)  # the payload follows
MAX_BYTES = HEADER.size + MAX_PAYLOAD_BYTES


def pack(message: Message) -> bytes:
    """Return a message as it is sent."""
    payload = message.payload
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"the payload of a message has [{len(payload)}] bytes")
    return HEADER.pack(MAGIC, message.NUMBER, *message.words(), len(payload), 0) + payload


def unpack(data: bytes) -> Message:
    """Return the message that has come; raise ValueError at a damaged one."""
    if len(data) < HEADER.size:
        raise ValueError(f"a server's message has only [{len(data)}] bytes")
    magic, number, first, second, third, size, _ = HEADER.unpack_from(data)
    payload = data[HEADER.size :]
    if magic != MAGIC or size != len(payload):
        raise ValueError(f"a server's message of [{len(data)}] bytes is damaged")
    if number not in KINDS:
        raise ValueError(f"a server's message of [{len(data)}] bytes has no kind [{number}]")
    return KINDS[number].of((first, second, third), payload)
