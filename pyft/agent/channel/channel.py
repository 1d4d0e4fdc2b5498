"""One channel: the four memory objects that join a client process, a device and its server.

The agent owns them, so they outlive client and server; when the job ends it saves the log object
(header, ring, object log, arena) for `pyft trace`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pyft import _native, config
from pyft._native import linux
from pyft.agent.channel import untrusted
from pyft.agent.channel.protocol import AttachRequest, Sizes, number_in
from pyft.agent.channel.untrusted import Areas
from pyft.errors import AttachError, PyftError
from pyft.wire import layout
from pyft.wire.layout import CALL_COUNTS, CONTROL_PAGE, LOG_HEADER, PAGE_BYTES, ChannelStatus

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGEST = 1 << 50  # of an object; what the machine has is less
MOST_PINNED_GB = layout.PINNED_STRIDE // GIB  # the next device's window begins there
_SIZED = ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass
class Channel:
    """Descriptors and identity of a channel. `close` ends the agent's share of the memory."""

    name: str  # never changes
    rank: int  # may be found out later
    client_pid: int
    device: int
    epoch: int
    log_fd: int = -1
    control_fd: int = -1
    bounce_fd: int = -1
    pinned_fd: int = -1
    store_fd: int = -1  # what survives the device; goes to servers only
    sizes: Sizes = field(default_factory=lambda: Sizes(0, 0, 0, 0))
    areas: Areas = field(default_factory=lambda: Areas(0, 0, 0, 0, 0, 0))  # of the log
    process: int = 1  # which of the processes that had this pid, one after the other

    @classmethod
    def create(
        cls, request: AttachRequest, epoch: int, environment: Mapping[str, str], process: int = 1
    ) -> Channel:
        """Create and format the memory; raise AttachError with the cause when there is none."""
        rank = number_in(request.environment, "RANK") or 0  # or as the agent finds out (ranks.py)
        channel = cls("", rank, request.pid, request.device, epoch, process=process)
        channel.name = name = channel.label
        try:
            channel._allocate(environment)
        except OSError as error:
            channel.close()
            code = error.errno or errno.ENOMEM
            raise AttachError(
                f"the memory of channel [{name}] cannot be created: {os.strerror(code)}", code
            ) from None
        except BaseException:
            channel.close()
            raise
        return channel

    def _allocate(self, environment: Mapping[str, str]) -> None:
        for part in ("log", "control", "bounce", "pinned"):
            fd = os.memfd_create(f"pyft-{part}-{self.name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            setattr(self, f"{part}_fd", fd)
            os.fchmod(fd, 0o600)
        mib = {key: _bytes(f"PYFT_{key}_MB", environment, MIB) for key in _SIZED}
        mib["RING"] = _bytes("PYFT_RING_KB", environment, KIB) or mib["RING"]
        code = _native.channel_format(
            self.log_fd,
            self.control_fd,
            self.bounce_fd,
            mib["RING"],
            mib["OBJECT_LOG"],
            mib["ARENA"],
            mib["BOUNCE"],
            self.client_pid,
            self.device,
            self.epoch,
        )
        if code:
            raise OSError(code, os.strerror(code))
        self.areas = Areas.of_new(self.log_fd)
        # Sparse: the client reserves pages before it hands them out, so this is a limit, not use.
        pinned = _bytes("PYFT_PINNED_GB", environment, GIB)
        if not 0 <= pinned <= MOST_PINNED_GB * GIB:
            most = f"the most is [{MOST_PINNED_GB}]"
            raise AttachError(f"PYFT_PINNED_GB is [{pinned // GIB}], {most}", errno.EINVAL)
        os.ftruncate(self.pinned_fd, pinned)
        fds = self.client_fds()
        for fd in fds:  # or a client could shrink them: a SIGBUS in server and agent
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        self.sizes = Sizes(*(os.fstat(fd).st_size for fd in fds))

    def add_store(self, environment: Mapping[str, str]) -> None:
        """Create the memory for snapshots, journal and records; the first server formats it."""
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.store_fd = os.memfd_create(f"pyft-store-{self.name}", flags)
        os.fchmod(self.store_fd, 0o600)
        os.ftruncate(self.store_fd, _bytes("PYFT_STORE_GB", environment, GIB))
        fcntl.fcntl(self.store_fd, fcntl.F_ADD_SEALS, _SEALS)
        self.sizes = replace(self.sizes, store=os.fstat(self.store_fd).st_size)

    @classmethod
    def adopt(cls, note: Mapping[str, Any], fds: list[int]) -> Channel:
        """Take over the channel of which an agent before this one made `note` and `fds`."""
        who = (note[key] for key in ("name", "rank", "client_pid", "device", "epoch"))
        store = fds[4] if len(fds) > 4 else -1
        areas, process = Areas(*note["areas"]), note["process"]
        return cls(*who, *fds[:4], store, Sizes(*note["sizes"]), areas, process)

    @property
    def label(self) -> str:
        """Return the name with the rank as it is known now."""
        again = f"-{self.process}" if self.process > 1 else ""
        return f"rank{self.rank}-pid{self.client_pid}-dev{self.device}{again}"

    def note(self) -> dict[str, Any]:
        """Return what `adopt` needs beside `fds`."""
        names = ("name", "rank", "client_pid", "device", "epoch", "process")
        known = {"sizes": astuple(self.sizes), "areas": astuple(self.areas)}
        return {name: getattr(self, name) for name in names} | known

    def fds(self) -> list[int]:
        """Return all descriptors that there are."""
        return [*self.client_fds(), *([self.store_fd] if self.store_fd >= 0 else [])]

    def client_fds(self) -> list[int]:
        """Descriptors for the client, in the order of attach.h."""
        return [self.log_fd, self.control_fd, self.bounce_fd, self.pinned_fd]

    @contextlib.contextmanager
    def server_fds(self):  # noqa: ANN201 - a generator of one list
        """The same for the server, whose log is read-only."""
        with self.read_only_log() as log:
            yield [log, *self.fds()[1:]]

    @contextlib.contextmanager
    def auditor_fds(self):  # noqa: ANN201 - a generator of one list
        """The same for an auditor, which may write to none of them."""
        with contextlib.ExitStack() as stack:
            fds = []
            for fd in self.fds():
                fds.append(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
                stack.callback(os.close, fds[-1])
            yield fds

    @contextlib.contextmanager
    def read_only_log(self):  # noqa: ANN201 - a generator of one descriptor
        """The log, for those that must not write to it."""
        read_only = os.open(f"/proc/self/fd/{self.log_fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield read_only
        finally:
            os.close(read_only)

    def set_status(self, status: ChannelStatus, text: str) -> None:
        """Publish why the channel ends; the client's waits look at it at least every 100 ms."""
        field = CONTROL_PAGE["status_text"]
        sentence = text.encode(errors="replace")[: field.size - 1]
        with mmap.mmap(self.control_fd, PAGE_BYTES) as page:
            field.write(page, sentence)
            CONTROL_PAGE["status"].write(page, status)
            futex = CONTROL_PAGE["status_futex"]
            futex.write(page, (futex.read(page) + 1) & 0xFFFFFFFF)
            linux.futex_wake(page, futex.offset)

    def hold(self, step: int, until_ns: int) -> None:
        """Have the client stand still behind the cut of this step (0: release it), so long."""
        with mmap.mmap(self.control_fd, PAGE_BYTES) as page:
            CONTROL_PAGE["hold_until_ns"].write(page, until_ns)
            CONTROL_PAGE["hold_step"].write(page, step)
            futex = CONTROL_PAGE["hold_futex"]
            futex.write(page, (futex.read(page) + 1) & 0xFFFFFFFF)
            linux.futex_wake(page, futex.offset)

    def status(self) -> tuple[int, str]:
        """Return the published status and its sentence."""
        page = untrusted.first_page(self.control_fd)
        text = untrusted.text(CONTROL_PAGE["status_text"].read(page))
        return CONTROL_PAGE["status"].read(page), text

    def header(self) -> dict[str, int]:
        """Return areas and counters of the log."""
        return untrusted.log_header(self.log_fd, self.areas)

    def said_goodbye(self) -> bool:
        """Say whether the last entry of the ring is the client's goodbye mark."""
        return untrusted.said_goodbye(self.log_fd, self.areas)

    def damage(self) -> str:
        """Return what no client of ours has written into header and control page, if anything."""
        return untrusted.damage(self.log_fd, self.control_fd, self.areas)

    def dispatching_seq(self) -> int:
        """Return the sequence number of the entry the server works on."""
        return CONTROL_PAGE["dispatching_seq"].read(untrusted.first_page(self.control_fd))

    def call_counts(self, native_dir: Path) -> dict[str, int]:
        """Return how often the client called each function; empty without the list of names."""
        try:
            names = _names_of_calls(native_dir / "coverage.json")
            counts = CALL_COUNTS.unpack(untrusted.field_of(self.control_fd, CALL_COUNTS))
            return {name: n for name, n in zip(names, counts, strict=False) if n}
        except (OSError, ValueError):
            return {}

    def close(self) -> None:
        """Close the descriptors; the memory goes with the last process that holds them."""
        for part in ("log", "control", "bounce", "pinned", "store"):
            fd = getattr(self, f"{part}_fd")
            if fd >= 0:
                os.close(fd)
                setattr(self, f"{part}_fd", -1)


def get_ready() -> None:
    """Load what the first client would wait for; if it cannot be loaded, that client is told."""
    with contextlib.suppress(PyftError):
        _native.library()


@cache
def _names_of_calls(path: Path) -> tuple[str, ...]:
    """Return the functions that clients count, in the order of the counters: they are thousands."""
    return tuple(row["name"] for row in json.loads(path.read_text()))


def save_log(log_fd: int, path: Path, areas: Areas) -> None:
    """Copy the used parts of a log object into a sparse file of the same layout."""
    header = untrusted.log_header(log_fd, areas)
    size = os.fstat(log_fd).st_size
    used = [
        (0, PAGE_BYTES),
        (areas.ring_offset, min(header["appended"], areas.ring_bytes)),
        (areas.object_log_offset, min(header["object_log_used"], areas.object_log_bytes)),
        (areas.arena_offset, min(header["arena_head"], areas.arena_bytes)),
    ]
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(out, size)
        for start, length in used:
            untrusted.copy(log_fd, out, start, start + length)
        for name, right in asdict(areas).items():  # where they are, in truth
            os.pwrite(out, LOG_HEADER[name].pack(right), LOG_HEADER[name].offset)
    finally:
        os.close(out)


def _bytes(name: str, environment: Mapping[str, str], unit: int) -> int:
    """Return a size that the client's environment asks for."""
    if (size := config.get_int(name, environment) * unit) > LARGEST:
        raise AttachError(
            f"{name} is [{environment[name][:40]}], which no machine has", errno.ENOMEM
        )
    return size
