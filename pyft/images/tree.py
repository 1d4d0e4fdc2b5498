"""What can be seen of a process tree before it is dumped: its processes, files and sockets."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyft.agent.process import process_tree
from pyft.images import packet_filter

_STANDARD = (0, 1, 2)
_ESTABLISHED, _LISTENS = "01", "0A"
_ANYWHERE = ("00000000", "0" * 32)  # any address of the host, in the words of /proc/net
_LOOPBACK = re.compile(r"[0-9A-F]{6}7F|0{24}01000000")  # 127.0.0.0/8, ::1
_MAPPED = "0000000000000000FFFF0000"  # ::ffff:0:0/96, in the words of /proc/net/tcp6


@dataclass(frozen=True)
class OpenFile:
    """A descriptor of a process."""

    pid: int
    fd: int
    link: str
    flags: int
    device: int
    inode: int
    is_regular: bool
    links: int

    @property
    def identity(self) -> tuple[int, int]:
        """Return what two descriptors of the same file have in common."""
        return self.device, self.inode

    @property
    def is_written(self) -> bool:
        """Say whether it is a file with a name, open for writing."""
        writes = self.flags & os.O_ACCMODE != os.O_RDONLY
        return self.is_regular and writes and self.links > 0


def members(root: int) -> list[int]:
    """Return the processes of a tree."""
    return [root, *process_tree.descendants(root)]


def open_files(pids: Collection[int]) -> Iterator[OpenFile]:
    """Yield the descriptors of processes that live."""
    for pid in pids:
        folder = Path(f"/proc/{pid}/fd")
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                about, link = os.stat(folder / name), os.readlink(folder / name)
                flags = _flags_of(pid, name)
            except OSError:  # closed meanwhile
                continue
            own = (about.st_dev, about.st_ino, stat.S_ISREG(about.st_mode), about.st_nlink)
            yield OpenFile(pid, int(name), link, flags, *own)


def standard_files(pid: int) -> dict[tuple[int, int], tuple[int, str]]:
    """Return stdin, stdout and stderr of a process: descriptor and link, by identity."""
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for fd in _STANDARD:
        try:
            about = os.stat(f"/proc/{pid}/fd/{fd}")
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if not stat.S_ISCHR(about.st_mode):  # /dev/null is opened again
            found[about.st_dev, about.st_ino] = (fd, link)
    return found


def connection_out_of(pids: Sequence[int], is_anywhere: bool = False) -> str:
    """Return a TCP connection of a tree whose other end is none of it, in words.

    `is_anywhere`: the tree may be restored on another host, which has other addresses.
    """
    inodes = {file.inode: file.pid for file in open_files(pids) if file.link.startswith("socket:")}
    ours = [row for row in _connections(pids[0]) if row.inode in inodes] if pids else []
    ends = {row.local for row in ours if row.state == _ESTABLISHED}
    for row in ours:
        if row.state == _ESTABLISHED and row.remote not in ends:
            return f"a connection of [pid {inodes[row.inode]}] leads out of the command"
        address = row.local.partition(":")[0]
        if is_anywhere and row.state == _LISTENS and not _is_everywhere(address):
            return f"[pid {inodes[row.inode]}] listens at an address that only this host has"
    return ""


def connections(pids: Sequence[int]) -> set[tuple[str, str]]:
    """Return the TCP connections of a tree, both ends of each as in /proc/net/tcp."""
    inodes = {file.inode for file in open_files(pids) if file.link.startswith("socket:")}
    rows = _connections(pids[0]) if pids else ()
    return {(r.local, r.remote) for r in rows if r.inode in inodes and r.state != _LISTENS}


def filter_keys(connections: Collection[tuple[str, str]]) -> set[bytes]:
    """Return connections as the network's filter has them, in both directions."""
    found = set()
    for local, remote in connections:
        ends = _packed(local), _packed(remote)
        found |= {packet_filter.key_of(*ends), packet_filter.key_of(*reversed(ends))}
    return found


def _packed(end: str) -> tuple[bytes, int]:
    """Return address and port, of which /proc/net has the former in words of this machine."""
    address, _, port = end.partition(":")
    words = (bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8))
    return b"".join(word[::-1] for word in words), int(port, 16)


def _is_everywhere(address: str) -> bool:
    return address in _ANYWHERE or bool(_LOOPBACK.fullmatch(address))


@dataclass(frozen=True)
class _Connection:
    """A TCP socket; both ends as the kernel writes them."""

    local: str
    remote: str
    state: str
    inode: int


def _connections(pid: int) -> Iterator[_Connection]:
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            yield _Connection(end_of(words[1]), end_of(words[2]), words[3], int(words[9]))


def end_of(text: str) -> str:
    """Return an address as one of version 4, if it is one in the form of version 6."""
    address, _, port = text.partition(":")
    return f"{address[len(_MAPPED) :] if address.startswith(_MAPPED) else address}:{port}"


def resident_bytes(pids: Collection[int]) -> int:
    """Return how much memory processes have that is in no file; what several share counts for each."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    found += int(line.split()[1]) << 10
    return found


def inherit_key(link: str) -> str:
    """Return what CRIU calls a descriptor that it is given instead of opening the file."""
    return link.lstrip("/") if link.startswith("/") else link


def _flags_of(pid: int, fd: str) -> int:
    for line in Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0
