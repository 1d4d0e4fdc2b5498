"""Reads memory that a client can write: the header of its log and its control page.

All of the agent's looks at them are made of the functions here, and those at a store, where a server
has named places. No other module reads at a place in a memory object (tools/check/offsets.py).

What they return is safe to compute with and to print, whatever the bytes are. It need not be true.
So it decides about the client's own rank only, never about others or about a GPU. What the agent has
laid out itself it remembers (`Areas`) and does not read back.
"""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass
from typing import Any

from pyft.wire import layout
from pyft.wire.layout import CONTROL_PAGE, ENTRY_HEADER, LOG_HEADER, PAGE_BYTES
from pyft.wire.view import Field, View

COPY_BYTES = 1 << 20
_ZEROS = bytes(COPY_BYTES)
_CHOICES = (
    ("status", frozenset(map(int, layout.ChannelStatus))),
    ("phase", frozenset(map(int, layout.Phase))),
)
# Of the log's header all but what says which kind of memory it is.
LOG_COUNTERS = tuple(name for name in LOG_HEADER.fields if name not in ("magic", "version"))


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
        """Return those of a log that nothing else has seen yet."""
        header = log_header(log_fd)
        return cls(**{name: header[name] for name in cls.__dataclass_fields__})


def first_page(fd: int) -> bytes:
    """Return all of it, even of an object that is shorter."""
    return os.pread(fd, PAGE_BYTES, 0).ljust(PAGE_BYTES, b"\0")


def lies_in(fd: int, offset: int, size: int) -> bool:
    """Say whether so many bytes lie at a place that another process has named."""
    return 0 <= offset <= os.fstat(fd).st_size - size


def bytes_at(fd: int, size: int, offset: int) -> bytes:
    """Return the bytes at such a place; none if they are not all there."""
    return os.pread(fd, size, offset) if lies_in(fd, offset, size) else b""


def some_at(fd: int, size: int, offset: int) -> bytes:
    """Return as many of the bytes at such a place as are there."""
    return os.pread(fd, size, offset) if lies_in(fd, offset, 0) else b""


def field_of(fd: int, field: Field) -> bytes:
    """Return the bytes of a field, even of an object that is shorter."""
    return os.pread(fd, field.size, field.offset).ljust(field.size, b"\0")


def records_at(fd: int, view: View, count: int, offset: int) -> list[Any]:
    """Return the records of an array, as far as they are there."""
    return [*view.each(_array(fd, view, count, offset))]


def column_at(fd: int, view: View, name: str, count: int, offset: int) -> list[Any]:
    """Return one field of the records of an array, as far as they are there."""
    return [*view.column(_array(fd, view, count, offset), name)]


def _array(fd: int, view: View, count: int, offset: int) -> bytes:
    raw = some_at(fd, count * view.size, offset)
    return raw[: len(raw) - len(raw) % view.size]


def copy(source: int, target: int, start: int, end: int) -> None:
    """Copy bytes without a look at them, to the same place; zeros are left out.

    Holes are not read: a client may have made terabytes of them.
    """
    while part := _next_data(source, start, end):
        start, size = part
        chunk = os.pread(source, size, start)
        if not chunk:
            return
        if chunk != _ZEROS[: len(chunk)]:
            os.pwrite(target, chunk, start)
        start += len(chunk)


def _next_data(fd: int, start: int, end: int) -> tuple[int, int] | None:
    """Return place and size of the next bytes that are no hole, None if there are none.

    This moves the position of the file, which nothing uses: all read and write at a place.
    """
    try:
        if start >= end or (at := os.lseek(fd, start, os.SEEK_DATA)) >= end:
            return None
        hole = os.lseek(fd, at, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to its end
            return None
        raise
    return at, min(COPY_BYTES, max(hole - at, 1), end - at)  # 1: it has become a hole meanwhile


def text(raw: bytes) -> str:
    """Return the text in a field: one line, of which no character moves a terminal's cursor."""
    found = raw.partition(b"\0")[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in found)


def log_header(log_fd: int, areas: Areas | None = None) -> dict[str, int]:
    """Return counters and areas of a log. With `areas` it is not asked where its parts are."""
    found = LOG_HEADER.read(first_page(log_fd), *LOG_COUNTERS)
    return found | (asdict(areas) if areas else {})


def said_goodbye(log_fd: int, areas: Areas) -> bool:
    """Say whether the last entry of a ring is the client's goodbye mark."""
    header = log_header(log_fd, areas)
    size = layout.GOODBYE_BYTES
    if header["appended"] < size or areas.ring_bytes < size:
        return False
    at = areas.ring_offset + (header["appended"] - size) % areas.ring_bytes
    raw = os.pread(log_fd, ENTRY_HEADER.size, at)
    if len(raw) < ENTRY_HEADER.size:
        return False
    entry = ENTRY_HEADER.unpack(raw)
    # The number guards against bytes of another entry that look like the mark.
    wanted = (size, layout.Mark.GOODBYE, header["next_seq"] - 1)
    return (entry.size, entry.call, entry.seq) == wanted


def damage(log_fd: int, control_fd: int, areas: Areas) -> str:
    """Return what no client of ours has written, nothing if all is as it can be.

    Only what is wrong at any time, since client and server write meanwhile, and what a server looks
    at but once: it checks the ring itself.
    """
    page, control = first_page(log_fd), first_page(control_fd)
    for part, view, raw, magic in (
        ("log", LOG_HEADER, page, layout.LOG_MAGIC),
        ("control page", CONTROL_PAGE, control, layout.CONTROL_MAGIC),
    ):
        begins = [*view.read(raw, "magic", "version").values()]
        if begins != [magic, layout.LAYOUT_VERSION]:
            return f"the {part} begins with {begins}"
    for name, right in asdict(areas).items():
        value = LOG_HEADER[name].read(page)
        if value != right:
            return f"{name} of the log is [{value}], not [{right}]"
    parts = [*CONTROL_PAGE.read(control, "reply_offset", "completion_offset").values()]
    if parts != [layout.REPLY_SLOTS_OFFSET, layout.COMPLETION_WORDS_OFFSET]:
        return f"the parts of the control page are at {parts}"
    for name, known in _CHOICES:
        value = CONTROL_PAGE[name].read(control)
        if value not in known:
            return f"the {name} in the control page is [{value}]"
    return ""
