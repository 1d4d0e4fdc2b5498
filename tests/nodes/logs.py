"""A log as `lives.py` reads it: its entries, and the code of the kernels that it names."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pyft.wire.layout import LOG_HEADER, Mark

HEADER = struct.Struct("<IHHQIIQQQ")  # EntryHeader
CUT = struct.Struct("<QQQBBHI")  # CutMark
MODULE, KERNEL, LAUNCH = 128, 130, 144  # cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel
EVENT_CREATE, EVENT_DESTROY, EVENT_RECORD, STREAM_WAIT_EVENT = 112, 113, 114, 98
NAMES = (
    "ring_offset",
    "ring_bytes",
    "oldest",
    "appended",
    "arena_offset",
    "arena_bytes",
    "object_log_offset",
    "object_log_bytes",
    "object_log_begin",
    "object_log_used",
)


class Entry(NamedTuple):
    """What is compared of an entry."""

    call: int
    flags: int
    seq: int
    thread: int
    body: bytes


def _raw(fd: int, kept: bool) -> Iterator[tuple[Entry, bytes]]:
    """Yield the entries of the ring, or of the object log, with what they carry."""
    log = LOG_HEADER.read(os.pread(fd, 4096, 0), *NAMES)
    first, size = ("object_log_offset", "object_log_bytes") if kept else NAMES[:2]
    at, end = (log[name] for name in (NAMES[8:] if kept else NAMES[2:4]))
    while at < end:
        offset = log[first] + at % log[size]
        bytes_, call, flags, seq, thread, _, payload, length, _ = HEADER.unpack(
            os.pread(fd, HEADER.size, offset)
        )
        if not kept:
            payload = log["arena_offset"] + payload % log["arena_bytes"]
        else:
            payload += offset
        if call != Mark.PAD:
            body = os.pread(fd, bytes_ - HEADER.size, offset + HEADER.size)
            yield Entry(call, flags, seq, thread, body), os.pread(fd, length, payload)
        at += bytes_


def entries(fd: int) -> list[Entry]:
    """Return all that the ring still has."""
    return [entry for entry, _ in _raw(fd, kept=False)]


def line_of(log: list[Entry], step: int) -> int:
    """Return the number of the entry that is the cut of a step."""
    cuts = [(one.seq, CUT.unpack(one.body[: CUT.size])) for one in log if one.call == Mark.CUT]
    return next(seq for seq, cut in cuts if cut[6] == step and not cut[3])


def kernels(fd: int) -> dict[int, tuple[str, bytes]]:
    """Return name and image of each kernel's module, by the kernel's handle."""
    modules: dict[int, bytes] = {}
    found: dict[int, tuple[str, int]] = {}
    for kept in (True, False):
        for entry, payload in _raw(fd, kept):
            if entry.call == MODULE:
                modules[struct.unpack_from("<Q", entry.body)[0]] = payload
            elif entry.call == KERNEL:
                handle, module = struct.unpack_from("<QQ", entry.body)
                found[handle] = (payload.decode(), module)
    return {handle: (name, modules.get(of, b"")) for handle, (name, of) in found.items()}


def with_free_events(log: list[Entry]) -> list[Entry]:
    """Name events by what they stand for: a place in a stream. Which event it is makes no difference.

    PyTorch takes one from its cache, or makes one, as its watchdog has come by or not.
    """
    places: dict[int, tuple[int, int]] = {}
    result = []
    for one in log:
        if one.call in (EVENT_CREATE, EVENT_DESTROY):
            continue
        body = one.body
        if one.call == EVENT_RECORD:
            event, stream, _, value = struct.unpack_from("<4Q", body)
            places[event] = (stream, value)
            body = struct.pack("<2Q", stream, value)
        elif one.call == STREAM_WAIT_EVENT:
            stream, event = struct.unpack_from("<2Q", body)
            body = struct.pack("<3Q", stream, *places.get(event, (event, 0)))
        result.append(one._replace(body=body))
    return result
