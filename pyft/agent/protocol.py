"""The Python side of proxy/ring/attach.h and of the parts of proxy/ring/layout.h the agent uses.

tests/unit/test_protocol.py compares all of it with the headers.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from pyft.errors import AttachError

ATTACH_MAGIC = 0x41544650
ATTACH_VERSION = 2
MAX_ENVIRONMENT_BYTES = 120 * 1024
TEXT_BYTES = 256

REQUEST = struct.Struct("<6I")
REPLY = struct.Struct("<IIiI IIII QQQQQ 256s")
# ServerMessage: magic, kind, a, b, c, bytes, reserved; the payload follows.
MESSAGE = struct.Struct("<II QQQ II")
MESSAGE_MAGIC = 0x4D544650
MAX_MESSAGE_PAYLOAD = 60 * 1024

LOG_MAGIC = 0x4C544650
CONTROL_MAGIC = 0x43544650
LAYOUT_VERSION = 1
# Byte offsets of fields.
LOG_FIELDS = {
    "ring_offset": 8,
    "ring_bytes": 16,
    "object_log_offset": 24,
    "object_log_bytes": 32,
    "arena_offset": 40,
    "arena_bytes": 48,
    "appended": 64,
    "committed": 72,
    "arena_head": 80,
    "arena_committed": 88,
    "object_log_used": 96,
    "next_seq": 104,
    "cuts": 112,
    "oldest": 120,
    "object_log_begin": 128,
    "object_log_lost": 136,
    "entries_total": 144,
    "forced_cuts": 152,
    "local_calls": 160,
    "space_waits": 168,
    "unreplayable_from": 176,
    "objects_missing": 184,
}
# Offsets in the control object.
CONTROL_PARTS = struct.pack("<QQ", 4096, 528384)  # reply slots and completion words, at byte 8
COMPLETION_WORDS_OFFSET = 528384
CONTROL_STATUS = 32
CONTROL_STATUS_FUTEX = 36
CONTROL_STATUS_TEXT = 40
CONTROL_CONSUMED = 320
CONTROL_STICKY_ERROR = 332
CONTROL_HEARTBEAT_NS = 336
CONTROL_DISPATCHING_SEQ = 344
COMPLETION_WORDS = 65536
COMPLETION_WORD = struct.Struct("<QQII8x")  # value, time_ns, futex, waiters
CONTROL_PHASE = 768
CALL_COUNTERS_OFFSET = 2625536
CALL_COUNTERS = 4096


class ChannelStatus(enum.IntEnum):
    """Mirror of pyft::ring::ChannelStatus."""

    STARTING = 0
    SERVING = 1
    SERVER_DEAD = 2
    AGENT_ENDING = 3
    CLIENT_GONE = 4
    RECOVERING = 5


class Phase(enum.IntEnum):
    """Mirror of pyft::ring::Phase."""

    LIVE = 0
    STARTING = 1
    OBJECTS = 2
    RESTORE = 3
    COMMUNICATORS = 4
    REPLAY = 5


@dataclass(frozen=True)
class AttachRequest:
    """A client's first message: who it is, which device it wants, and its environment."""

    pid: int
    device: int
    environment: dict[str, str]

    @classmethod
    def parse(cls, message: bytes) -> AttachRequest:
        """Check every field, since the sender may be anything."""
        if len(message) < REQUEST.size:
            raise AttachError(f"the attach request has only [{len(message)}] bytes", 22)
        magic, version, pid, device, size, _ = REQUEST.unpack_from(message)
        if magic != ATTACH_MAGIC:
            raise AttachError(f"the attach request starts with [{magic:#x}], not a pyft client", 22)
        if version != ATTACH_VERSION:
            raise AttachError(
                f"the client speaks attach version [{version}], the agent [{ATTACH_VERSION}]", 71
            )
        if size > MAX_ENVIRONMENT_BYTES or size != len(message) - REQUEST.size:
            raise AttachError(f"the client's environment of [{size}] bytes is cut or too long", 7)
        return cls(pid, device, parse_environment(message[REQUEST.size :]))


def parse_environment(data: bytes) -> dict[str, str]:
    """Split "A=1\\0B=2\\0"; entries without a name are dropped, as the kernel allows them."""
    environment = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            environment[name.decode(errors="surrogateescape")] = value.decode(
                errors="surrogateescape"
            )
    return environment


@dataclass(frozen=True)
class Sizes:
    """Bytes of the memory objects of a channel; the store is its server's only."""

    log: int
    control: int
    bounce: int
    pinned: int
    store: int = 0


def pack_reply(
    device: int, client_pid: int, server_pid: int, epoch: int, sizes: Sizes, settings: str = ""
) -> bytes:
    """Return an AttachReply that grants the request; the descriptors go with it.

    `settings` changes the environment of a server that was started before it was needed.
    """
    head = (ATTACH_MAGIC, ATTACH_VERSION, 0, device, client_pid, server_pid, epoch, 0)
    part = (sizes.log, sizes.control, sizes.bounce, sizes.pinned, sizes.store)
    return REPLY.pack(*head, *part, settings.encode(errors="surrogateescape"))


def pack_refusal(error: int, text: str) -> bytes:
    """Return an AttachReply that refuses the request."""
    sentence = text.encode(errors="replace")[: TEXT_BYTES - 1]
    return REPLY.pack(ATTACH_MAGIC, ATTACH_VERSION, error, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sentence)


def pack_message(kind: int, a: int, b: int, c: int, payload: bytes) -> bytes:
    """Return a ServerMessage with its payload."""
    if len(payload) > MAX_MESSAGE_PAYLOAD:
        raise ValueError(f"the payload of a message has [{len(payload)}] bytes")
    return MESSAGE.pack(MESSAGE_MAGIC, kind, a, b, c, len(payload), 0) + payload


def unpack_message(data: bytes) -> tuple[int, int, int, int, bytes]:
    """Return kind, a, b, c and payload of a ServerMessage; raise ValueError at a damaged one."""
    if len(data) < MESSAGE.size:
        raise ValueError(f"a server's message has only [{len(data)}] bytes")
    magic, kind, a, b, c, size, _ = MESSAGE.unpack_from(data)
    payload = data[MESSAGE.size :]
    if magic != MESSAGE_MAGIC or size != len(payload):
        raise ValueError(f"a server's message of [{len(data)}] bytes is damaged")
    return kind, a, b, c, payload
