"""Linux system calls that the Python library lacks. Needs no native file of ours."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38
_NO_IO_URING = (  # classic BPF: operation, jumps if true and false, value
    (0x20, 0, 0, 0),  # load the system call's number
    (0x35, 0, 2, 425),  # io_uring_setup, from which
    (0x25, 1, 0, 427),  # to io_uring_register
    (0x06, 0, 0, 0x00050000 | 38),  # ENOSYS
    (0x06, 0, 0, 0x7FFF0000),  # all others are allowed
)

# The same numbers on all architectures.
_SYS_PIDFD_GETFD = 438
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_NOEXEC = 2, 4, 8

_CLONE_NEWTIME = 0x80
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
_OFFSETS = Path("/proc/self/timens_offsets")
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 1 << 30
_MAP_FIXED_NOREPLACE = 0x100000
_MAP_NORESERVE = 0x4000
_ASK_PERSONALITY = 0xFFFFFFFF
_ADDR_NO_RANDOMIZE = 0x0040000

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_MAX, LAST_PID = Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/ns_last_pid")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.personality.argtypes = (ctypes.c_ulong,)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def prctl(option: int, value: int | bytes) -> None:
    """Set an attribute of this process; raise OSError when the kernel refuses."""
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl [{option}] failed")


def refuse_io_uring() -> None:
    """Have the kernel answer that it has no io_uring, to this process and what it becomes.

    CRIU cannot dump one, and libuv, in torchrun's store, does without. For use before exec.
    """
    if platform.machine() != "x86_64":
        return
    filters = b"".join(struct.pack("=HBBI", *row) for row in _NO_IO_URING)
    code = ctypes.create_string_buffer(filters, len(filters))
    program = struct.pack("@HP", len(_NO_IO_URING), ctypes.addressof(code))
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl [PR_SET_SECCOMP] failed")


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end of a Unix socket.

    If this end has connected, those of the process that listens.
    """
    credentials = struct.Struct("3i")  # of pid_t, uid_t, gid_t
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    pid, uid, _ = credentials.unpack(raw)
    return pid, uid


def receive_with_user(channel: socket.socket, most: int) -> tuple[bytes, int | None]:
    """Take a datagram, and the user that has sent it: from a socket with SO_PASSCRED."""
    credentials = struct.Struct("3i")
    data, parts, _, _ = channel.recvmsg(most, socket.CMSG_SPACE(credentials.size))
    for level, kind, raw in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return data, credentials.unpack(raw[: credentials.size])[1]
    return data, None


def boot_id() -> str:
    """Return what tells this boot of this machine from all others; raise OSError."""
    return _BOOT_ID.read_text().strip()


def clocks() -> dict[str, int]:
    """Return what the clocks say that begin with the host, in nanoseconds."""
    return {name: time.clock_gettime_ns(clock) for name, clock in _CLOCKS.items()}


def set_clocks(wanted: Mapping[str, int]) -> None:
    """Give this process, and all that it starts, clocks that go on from there; raise OSError.

    Works in a process of one thread, with CAP_SYS_ADMIN.
    """
    offsets = dict(line.split(maxsplit=1) for line in _OFFSETS.read_text().splitlines())
    if _libc.unshare(_CLONE_NEWTIME) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    lines = []
    for name, now in clocks().items():
        seconds, nanoseconds = map(int, offsets[name].split())
        offset = seconds * 10**9 + nanoseconds + wanted[name] - now
        lines.append(f"{name} {offset // 10**9} {offset % 10**9}\n")
    _OFFSETS.write_text("".join(lines))
    fd = os.open("/proc/self/ns/time_for_children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _CLONE_NEWTIME) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)


def spread_pids() -> None:
    """Let the next processes have numbers from anywhere: their images need the same ones elsewhere.

    The first ones after the start of a host or a container are taken on each. Nothing happens where
    that is not allowed.
    """
    with contextlib.suppress(OSError, ValueError):
        most = int(PID_MAX.read_text())
        LAST_PID.write_text(str(most // 8 + secrets.randbelow(most // 4 * 3)))


def detached_tmpfs(options: Mapping[str, str]) -> int:
    """Return a descriptor of the root of a new file system in memory, which is mounted nowhere.

    It ends with its last descriptor. Raise OSError; needs CAP_SYS_ADMIN.
    """
    context = _system_call(_SYS_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    try:
        for name, value in options.items():
            words = (name.encode(), value.encode())
            _system_call(_SYS_FSCONFIG, context, _FSCONFIG_SET_STRING, *words, 0)
        _system_call(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        attributes = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC
        return _system_call(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def descriptor_of(pid: int, fd: int) -> int:
    """Return a descriptor of ours for what another process has open; raise OSError.

    Needs the right to trace that process.
    """
    process = os.pidfd_open(pid)
    try:
        return _system_call(_SYS_PIDFD_GETFD, process, fd, 0)
    finally:
        os.close(process)


def _system_call(number: int, *arguments: object) -> int:
    done = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def same_addresses() -> bool:
    """Have programs that this process executes lie where they lay; say whether the kernel agrees.

    For use between fork and exec. Some containers forbid it.
    """
    present = _libc.personality(_ASK_PERSONALITY)
    return present >= 0 and _libc.personality(present | _ADDR_NO_RANDOMIZE) >= 0


def futex_wake(memory: mmap.mmap, offset: int) -> None:
    """Wake all that sleep on a 32-bit word of shared memory."""
    word = ctypes.c_uint32.from_buffer(memory, offset)
    call = _SYS_FUTEX[platform.machine()]
    _libc.syscall(call, ctypes.byref(word), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
    del word  # or the mapping could not be closed


def can_reserve(address: int, size_bytes: int) -> str:
    """Try to reserve address space exactly there; return why not, or nothing when it works."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE | _MAP_NORESERVE
    got = _libc.mmap(address, size_bytes, 0, flags, -1, 0)
    if got != address:
        return os.strerror(ctypes.get_errno())
    _libc.munmap(got, size_bytes)
    return ""


def loads(library: str) -> bool:
    """Say whether a shared library can be loaded."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
