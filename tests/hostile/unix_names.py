"""Abstract names of flexccl's Unix sockets, as the kernel lists them: they end in 16 bytes of any value."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path

# A space or the end of a line may be part of the name; a zero byte is shown as `@`.
_ROW = re.compile(rb" (\d+) @(flexccl-)(.{16})\n", re.DOTALL)


def names(inodes: Collection[str], table: Path = Path("/proc/net/unix")) -> list[bytes]:
    """Return what can be connected to of these sockets, and what would be their name otherwise."""
    rows = [row for row in _ROW.findall(table.read_bytes()) if row[0].decode() in inodes]
    return sorted({b"\0" + prefix + name for _, prefix, shown in rows for name in _meant(shown)})


def _meant(shown: bytes) -> Iterator[bytes]:
    choices = [(b"\0", b"@") if byte == b"@"[0] else (bytes([byte]),) for byte in shown]
    yield from map(b"".join, itertools.product(*choices))
