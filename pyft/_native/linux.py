"""Linux system calls that the Python library lacks. Needs no native file of ours."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 1 << 30
_MAP_FIXED_NOREPLACE = 0x100000
_MAP_NORESERVE = 0x4000
_ASK_PERSONALITY = 0xFFFFFFFF
_ADDR_NO_RANDOMIZE = 0x0040000

# With more random bits than these (of page numbers) a program may lie where the windows of devices
# are, with 32, as some distributions have it, one in 16.
_MOST_RANDOM_BITS = 28
RANDOM_BITS = Path("/proc/sys/vm/mmap_rnd_bits")

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


def same_addresses() -> bool:
    """Have programs that this process executes lie where they lay; say whether the kernel agrees.

    For use between fork and exec. Some containers forbid it.
    """
    present = _libc.personality(_ASK_PERSONALITY)
    return present >= 0 and _libc.personality(present | _ADDR_NO_RANDOMIZE) >= 0


def may_lie_in_windows() -> bool:
    """Say whether the kernel puts programs where the windows of devices are."""
    try:
        return int(RANDOM_BITS.read_text()) > _MOST_RANDOM_BITS
    except (OSError, ValueError):
        return False


def keep_windows_free() -> None:
    """Have the program that this process executes lie elsewhere. For use between fork and exec."""
    if may_lie_in_windows():
        same_addresses()


def can_fix_addresses() -> bool:
    """Say whether same_addresses() would work."""
    present = _libc.personality(_ASK_PERSONALITY)
    able = same_addresses()
    if able:
        _libc.personality(present)
    return able


def futex_wake(memory: mmap.mmap, offset: int) -> None:
    """Wake all who sleep on a 32-bit word of shared memory."""
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
