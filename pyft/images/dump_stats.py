"""What CRIU notes of a dump: for how long it let the processes stand still (its file stats-dump)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

NAME = "stats-dump"
_HEAD = struct.Struct("<III")  # two marks, and the length of what follows
_MARKS = (0x55105940, 0x57093306)
_LARGEST = 4096
_DUMP = 1  # number of the part that is about dumps
_FREEZING_US, _FROZEN_US = 1, 2  # numbers of its values
_VARINT, _BYTES = 0, 2  # kinds of values
_MOST_S = 3600.0


def stood_s(folder: Path) -> float:
    """Return the seconds that processes stood still for what lies in a folder; 0: it is not known."""
    try:
        data = (folder / NAME).read_bytes()[: _HEAD.size + _LARGEST]
        *marks, size = _HEAD.unpack_from(data)
        if tuple(marks) != _MARKS or size > len(data) - _HEAD.size:
            return 0.0
        about = dict(_values(data[_HEAD.size : _HEAD.size + size]))[_DUMP]
        found = dict(_values(about)) if isinstance(about, bytes) else {}
        each = [found.get(number, 0) for number in (_FREEZING_US, _FROZEN_US)]
        return min(_MOST_S, sum(one for one in each if isinstance(one, int)) / 1e6)
    except (OSError, struct.error, IndexError, KeyError, ValueError):
        return 0.0


def _values(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of all in a message of protocol buffers; raise IndexError, ValueError."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value, at = _number(data, at)
        if key & 7 == _BYTES:
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == _VARINT:
            yield key >> 3, value
        else:
            raise ValueError("another kind of value")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
