"""Reads memory that a client can write: the header of its log and its control page.

All of the agent's and the trace reader's looks at them are made of the functions here. What they
return is safe to compute with and to print, whatever the bytes are; that it is true nobody can
know. So it decides about the client's own rank only, never about others or about a GPU. What the
agent has laid out itself it remembers (`Areas`) and does not read back.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyft.agent import protocol
from pyft.agent.protocol import LOG_FIELDS

PAGE = 4096
GOODBYE = 9
GOODBYE_BYTES = 64  # with its body
_ENTRY = struct.Struct("<IHHQ")
_MAGIC = struct.Struct("<II")
_PARTS = struct.Struct("<QQ")
_CHOICES = (
    ("status", protocol.CONTROL_STATUS, frozenset(map(int, protocol.ChannelStatus))),
    ("phase", protocol.CONTROL_PHASE, frozenset(map(int, protocol.Phase))),
)


@dataclass(frozen=True)
class Areas:
    """Where the parts of a log object are, as its maker knows."""

    ring_offset: int
    ring_bytes: int
    object_log_offset: int
    object_log_bytes: int
    arena_offset: int
    arena_bytes: int

    @classmethod
    def of_new(cls, log_fd: int) -> Areas:
        """Return those of a log that nobody else has seen yet."""
        header = log_header(log_fd)
        return cls(**{name: header[name] for name in cls.__dataclass_fields__})


def fields(fd: int, places: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return fields of an object's first page, by name: their offset and format."""
    page = first_page(fd)
    found = {}
    for name, (offset, form) in places.items():
        values = struct.unpack_from(form, page, offset)
        found[name] = values if len(values) > 1 else values[0]
    return found


def first_page(fd: int) -> bytes:
    """Return all of it, even of an object that is shorter."""
    return os.pread(fd, PAGE, 0).ljust(PAGE, b"\0")


def text(raw: bytes) -> str:
    """Return the text in a field: one line, of which no character moves a terminal's cursor."""
    found = raw.partition(b"\0")[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in found)


def log_header(log_fd: int, areas: Areas | None = None) -> dict[str, int]:
    """Return counters and areas of a log. With `areas` it is not asked where its parts are."""
    page = first_page(log_fd)
    found = {name: struct.unpack_from("<Q", page, at)[0] for name, at in LOG_FIELDS.items()}
    return found | (asdict(areas) if areas else {})


def said_goodbye(log_fd: int, areas: Areas) -> bool:
    """Say whether the last entry of a ring is the client's goodbye mark."""
    header = log_header(log_fd, areas)
    if header["appended"] < GOODBYE_BYTES or areas.ring_bytes < GOODBYE_BYTES:
        return False
    at = areas.ring_offset + (header["appended"] - GOODBYE_BYTES) % areas.ring_bytes
    raw = os.pread(log_fd, _ENTRY.size, at)
    if len(raw) < _ENTRY.size:
        return False
    size, call, _, seq = _ENTRY.unpack(raw)
    # The number guards against bytes of another entry that look like the mark.
    return (size, call, seq) == (GOODBYE_BYTES, GOODBYE, header["next_seq"] - 1)


def damage(log_fd: int, control_fd: int, areas: Areas) -> str:
    """Return what no client of ours has written, nothing if all is as it can be.

    Only what is wrong at any time, since client and server write meanwhile, and what a server looks
    at but once: it checks the ring itself.
    """
    page, control = first_page(log_fd), first_page(control_fd)
    for part, raw, magic in (
        ("log", page, protocol.LOG_MAGIC),
        ("control page", control, protocol.CONTROL_MAGIC),
    ):
        if _MAGIC.unpack_from(raw) != (magic, protocol.LAYOUT_VERSION):
            return f"the {part} begins with {list(_MAGIC.unpack_from(raw))}"
    for name, right in asdict(areas).items():
        (value,) = struct.unpack_from("<Q", page, LOG_FIELDS[name])
        if value != right:
            return f"{name} of the log is [{value}], not [{right}]"
    if control[8:24] != protocol.CONTROL_PARTS:
        return f"the parts of the control page are at {list(_PARTS.unpack_from(control, 8))}"
    for name, at, known in _CHOICES:
        (value,) = struct.unpack_from("<I", control, at)
        if value not in known:
            return f"the {name} in the control page is [{value}]"
    return ""
