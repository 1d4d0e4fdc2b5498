"""Whether a file lies on a disk of this host alone, which no other host sees."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyft._native import linux

_MOUNTS = Path("/proc/self/mountinfo")
# Some that have no number of a disk: by that they look like the file system of a network.
_OWN = {"bcachefs", "btrfs", "overlay", "ramfs", "tmpfs", "zfs"}
_OF_A_CLUSTER = {"gfs2", "ocfs2"}  # on a disk that several hosts have
_OCTAL = re.compile(r"\\([0-7]{3})")


def disk_of(path: str, device: int) -> str:
    """Return what no other host calls the disk of a file; empty if others may see the same file."""
    kind = _kind_of(path)
    is_own = kind in _OWN or (os.major(device) != 0 and kind not in _OF_A_CLUSTER)
    return f"{linux.boot_id()}-{device}" if is_own else ""


def _kind_of(path: str) -> str:
    """Return the kind of the file system that a path leads to.

    Not by the file's device: btrfs gives files another one than it is mounted with.
    """
    found, kind = "", ""
    for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
        words = line.split(" ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), words[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found):  # of two at one place the later one is seen
            found, kind = point, words[words.index("-") + 1]
    return kind
