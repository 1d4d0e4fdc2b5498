"""Reads what another host has sent: each value has its type and its bounds, or there is no message."""

from __future__ import annotations

import base64
import re
from typing import Any

from pyft.hosts.wire.link import LinkError

MOST = 1 << 62
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TEXT = 1000


def number(message: dict[str, Any], name: str, most: int = MOST) -> int:
    """Return a number that is not negative."""
    value = message.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise LinkError(f"[{name}] is [{value!r:.40}]")
    return value


def text(message: dict[str, Any], name: str) -> str:
    """Return a text, cut to what fits into a sentence."""
    value = message.get(name)
    if not isinstance(value, str):
        raise LinkError(f"[{name}] is no text")
    return "".join(c if c.isprintable() else "?" for c in value[:_TEXT])


def name(message: dict[str, Any], key: str) -> str:
    """Return a name of a host or a file: no folder, nothing hidden."""
    value = message.get(key)
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise LinkError(f"[{key}] is [{value!r:.40}]")
    return value


def names(message: dict[str, Any], key: str) -> list[str]:
    """Return a list of names."""
    value = message.get(key)
    if not isinstance(value, list):
        raise LinkError(f"[{key}] is no list")
    return [name({key: one}, key) for one in value]


def texts(message: dict[str, Any], key: str, most: int) -> list[str]:
    """Return a list of so many texts at most, each cut as one is."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise LinkError(f"[{key}] is no list, or too long")
    return [text({key: one}, key) for one in value]


def hosts(message: dict[str, Any], key: str) -> list[tuple[str, str, int]]:
    """Return hosts: name, address and port of each."""
    value = message.get(key)
    if not isinstance(value, list) or any(not isinstance(one, list) for one in value):
        raise LinkError(f"[{key}] is no list of hosts")
    made = []
    for one in value:
        said = dict(zip(("host", "address", "port"), one, strict=False))
        where = (name(said, "host"), name(said, "address"), number(said, "port", 65535))
        made.append(where)
    return made


def data(message: dict[str, Any], key: str, most: int = 1 << 18) -> bytes:
    """Return bytes, which are written with 64 signs."""
    value = message.get(key)
    if not isinstance(value, str) or len(value) > most:
        raise LinkError(f"[{key}] is no data, or too long")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise LinkError(f"[{key}] is no data") from None


def numbers(message: dict[str, Any], key: str, most: int, largest: int = MOST) -> list[int]:
    """Return a list of so many numbers at most, of which none is negative."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise LinkError(f"[{key}] is no list, or too long")
    return [number({key: one}, key, largest) for one in value]


def rows(message: dict[str, Any], key: str, columns: int, most: int) -> list[list[int]]:
    """Return rows of numbers."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise LinkError(f"[{key}] is no list, or too long")
    for row in value:
        right = isinstance(row, list) and len(row) == columns
        if not right or any(type(one) is not int or abs(one) >= 1 << 64 for one in row):
            raise LinkError(f"[{key}] has a row [{row!r:.40}]")
    return value
