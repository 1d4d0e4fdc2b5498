"""The one door to native code: libpyft_native.so through ctypes. See proxy/native/native.h."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from pyft import config
from pyft.errors import PyftError


class NativeError(PyftError):
    """A native function refused; the sentence is its own."""


class TraceEntry(ctypes.Structure):
    """Mirror of PyftTraceEntry: the header of one ring entry."""

    _fields_ = (
        ("seq", ctypes.c_uint64),
        ("time_ns", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("payload_bytes", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("reply_slot", ctypes.c_uint32),
        ("call", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("payload_overwritten", ctypes.c_uint32),
        ("forced", ctypes.c_uint32),  # of a cut: not made after a step
        ("step", ctypes.c_uint32),  # of a cut: steps of the client so far
    )


class TraceInfo(ctypes.Structure):
    """Mirror of PyftTraceInfo: the counters of a log."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in (
                "ring_bytes",
                "arena_bytes",
                "object_log_bytes",
                "appended",
                "oldest",
                "committed",
                "arena_head",
                "cuts",
                "forced_cuts",
                "entries_total",
                "local_calls",
                "space_waits",
                "object_log_lost",
                "live_objects",
                "live_object_bytes",
            )
        ),
        ("client_pid", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
    )


def native_dir() -> Path:
    """Return the folder of the native files; PYFT_NATIVE_DIR names another one (a build tree)."""
    override = config.get_str("PYFT_NATIVE_DIR")
    return Path(override) if override else Path(__file__).resolve().parent / "lib"


_INT, _U32, _U64, _SIZE = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
_TRACE, _TEXT, _ENTRY = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(TraceEntry)
_FUNCTIONS = {
    "pyft_channel_format": (_INT, [_INT] * 3 + [_U64] * 4 + [_U32] * 3),
    "pyft_layout_sizes": (None, [ctypes.POINTER(_U64)]),
    "pyft_digest": (None, [ctypes.c_void_p, _U64, ctypes.POINTER(_U64)]),
    "pyft_trace_open": (_TRACE, [_TEXT, ctypes.c_char_p, _SIZE]),
    "pyft_trace_open_fd": (_TRACE, [_INT, ctypes.c_char_p, _SIZE]),
    "pyft_trace_close": (None, [_TRACE]),
    "pyft_trace_info": (None, [_TRACE, ctypes.POINTER(TraceInfo)]),
    "pyft_trace_next": (_INT, [_TRACE, _ENTRY]),
    "pyft_trace_next_object": (_INT, [_TRACE, _ENTRY]),
    "pyft_trace_skip": (_U64, [_TRACE, _U64]),
    "pyft_trace_rewind": (None, [_TRACE]),
    "pyft_trace_error": (_TEXT, [_TRACE]),
    "pyft_trace_text": (_TEXT, [_TRACE, _INT]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """Load libpyft_native.so once and give its functions their types."""
    path = native_dir() / "libpyft_native.so"
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeError(f"the native library [{path}] cannot be loaded: {error}") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def channel_format(
    log_fd: int,
    control_fd: int,
    bounce_fd: int,
    ring_bytes: int,
    object_log_bytes: int,
    arena_bytes: int,
    bounce_bytes: int,
    client_pid: int,
    device: int,
    epoch: int,
) -> int:
    """Size and initialise a channel's memory objects; return 0 or an errno."""
    return library().pyft_channel_format(
        log_fd,
        control_fd,
        bounce_fd,
        ring_bytes,
        object_log_bytes,
        arena_bytes,
        bounce_bytes,
        client_pid,
        device,
        epoch,
    )


def layout_sizes() -> dict[str, int]:
    """Return the sizes of the structs that Python packs or reads, as the compiler sees them."""
    names = ("AttachRequest", "AttachReply", "LogHeader", "ControlPage", "control")
    values = (ctypes.c_uint64 * len(names))()
    library().pyft_layout_sizes(values)
    return dict(zip(names, values, strict=True))


def digest(data: bytes | memoryview) -> str:
    """Return the digest of contents, as stores have it; XXH3 of 128 bits, in hexadecimal.

    A view has to be of memory that can be written.
    """
    # ctypes takes the address of bytes, and of what can be written.
    is_bytes = isinstance(data, bytes)
    start: Any = data if is_bytes else (ctypes.c_char * len(data)).from_buffer(data)
    out = (_U64 * 2)()
    library().pyft_digest(start, len(data), out)
    return f"{out[1]:016x}{out[0]:016x}"


class NativeTrace:
    """An open log; pyft.trace.reader is the comfortable way to use it."""

    def __init__(self, source: Path | int) -> None:
        """Open a saved file (path) or a live log object (descriptor, stays the caller's)."""
        self._library = library()
        error = ctypes.create_string_buffer(512)
        if isinstance(source, int):
            trace = self._library.pyft_trace_open_fd(source, error, len(error))
        else:
            trace = self._library.pyft_trace_open(os.fsencode(source), error, len(error))
        if not trace:
            reason = error.value.decode(errors="replace")
            raise NativeError(f"[{source}] cannot be read as a trace: {reason}")
        self._trace = trace

    def close(self) -> None:
        """Unmap the log; further calls are errors."""
        trace, self._trace = self._trace, None
        if trace:
            self._library.pyft_trace_close(trace)

    def info(self) -> TraceInfo:
        """Return the log's counters."""
        info = TraceInfo()
        self._library.pyft_trace_info(self._trace, ctypes.byref(info))
        return info

    def next(self, objects: bool = False) -> TraceEntry | None:
        """Return the next entry of the ring (or object log), None at the end."""
        entry = TraceEntry()
        step = self._library.pyft_trace_next_object if objects else self._library.pyft_trace_next
        result = step(self._trace, ctypes.byref(entry))
        if result < 0:
            raise NativeError(self._library.pyft_trace_error(self._trace).decode(errors="replace"))
        return entry if result else None

    def skip(self, count: int) -> int:
        """Skip up to `count` entries and return how many there were."""
        return self._library.pyft_trace_skip(self._trace, count)

    def rewind(self) -> None:
        """Go back to the oldest entry that is still whole."""
        self._library.pyft_trace_rewind(self._trace)

    def text(self, deterministic: bool = False) -> str:
        """Return the entry that `next` returned last as one line."""
        text = self._library.pyft_trace_text(self._trace, int(deterministic))
        return text.decode(errors="replace")
