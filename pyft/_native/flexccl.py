"""The door to libflexccl.so through ctypes: prototypes, structs and addresses of buffers.

`pyft.flexccl` is the comfortable way to use it; flexccl/include/flexccl.h has the contracts.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from pyft._native import native_dir
from pyft.errors import NativeMissingError

UNIQUE_ID_BYTES = 128
INFO_BYTES = 4096


class UniqueId(ctypes.Structure):
    """Mirror of ncclUniqueId, which the C functions take by value."""

    _fields_ = (("internal", ctypes.c_char * UNIQUE_ID_BYTES),)


class Info(ctypes.Structure):
    """Mirror of flexcclInfo_t."""

    _fields_ = (("internal", ctypes.c_char * INFO_BYTES),)


class Child(ctypes.Structure):
    """Mirror of flexcclChild_t."""

    _fields_ = (("comm", ctypes.c_uint64), ("slot", ctypes.c_int), ("padding", ctypes.c_int))


class State(ctypes.Structure):
    """Mirror of flexcclState_t."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("epoch", ctypes.c_uint32),
        *((name, ctypes.c_int) for name in ("slot", "slots", "nranks", "position")),
        *((name, ctypes.c_int) for name in ("paused", "suspect")),
        *((name, ctypes.c_uint64) for name in ("entered", "done", "all_done", "operation")),
        *((name, ctypes.c_uint64) for name in ("kept_bytes", "record_bytes", "record_budget")),
        ("committed", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in ("recorded", "replaying")),
        *((name, ctypes.c_uint64) for name in ("diverged", "comm")),
        *((name, ctypes.c_uint64) for name in ("content_bytes", "content_room")),
        ("owed", ctypes.c_uint64),
    )


_INT, _SIZE, _PTR, _TEXT = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_COMM, _STREAM = ctypes.c_void_p, ctypes.c_void_p
_U64, _INFO = ctypes.c_uint64, ctypes.POINTER(Info)
_OUT_COMM, _OUT_INT = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int)
_REDUCE = [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _STREAM]
_MOVE = [_PTR, _PTR, _SIZE, _INT, _COMM, _STREAM]
_MOVE_ROOT = [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _STREAM]
_TRANSFER = [_PTR, _SIZE, _INT, _INT, _COMM, _STREAM]
# All of these return a result code.
_CHECKED = {
    "ncclGetVersion": [_OUT_INT],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [_OUT_COMM, _INT, UniqueId, _INT],
    "ncclCommInitAll": [_OUT_COMM, _INT, _OUT_INT],
    "ncclCommSplit": [_COMM, _INT, _INT, _OUT_COMM, _PTR],
    "ncclCommShrink": [_COMM, _OUT_INT, _INT, _OUT_COMM, _PTR, _INT],
    "ncclCommFinalize": [_COMM],
    "ncclCommDestroy": [_COMM],
    "ncclCommAbort": [_COMM],
    "ncclCommGetAsyncError": [_COMM, _OUT_INT],
    "ncclCommCount": [_COMM, _OUT_INT],
    "ncclCommUserRank": [_COMM, _OUT_INT],
    "ncclRedOpCreatePreMulSum": [_OUT_INT, _PTR, _INT, _INT, _COMM],
    "ncclRedOpDestroy": [_INT, _COMM],
    "ncclAllReduce": _REDUCE,
    "ncclReduceScatter": _REDUCE,
    "ncclReduce": [_PTR, _PTR, _SIZE, _INT, _INT, _INT, _COMM, _STREAM],
    "ncclAllGather": _MOVE,
    "ncclAlltoAll": _MOVE,
    "ncclBroadcast": _MOVE_ROOT,
    "ncclGather": _MOVE_ROOT,
    "ncclScatter": _MOVE_ROOT,
    "ncclSend": _TRANSFER,
    "ncclRecv": _TRANSFER,
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommExportInfo": [_COMM, _INT, _INFO],
    "ncclInitNewNode": [_OUT_COMM, _INFO, _INT, _INFO],
    "ncclReplaceNode": [_COMM, _INT, _INFO],
    "ncclAddNode": [_COMM, _INFO],
    "ncclRemoveNode": [_COMM, _INT],
    "ncclCommSetupNewRank": [_COMM],
    "flexcclGetState": [_COMM, ctypes.POINTER(State)],
    "flexcclSetReservedSlots": [_INT],
    "flexcclSetRepair": [_U64],
    "flexcclSetRecords": [_COMM, _PTR, _SIZE],
    "flexcclCommitted": [_COMM, _U64],
    "flexcclReplay": [_COMM, _PTR, _SIZE, _U64],
    "flexcclSetContents": [_PTR, _SIZE, _INT],
    "flexcclAdopt": [_OUT_COMM, _PTR, _SIZE, _U64],
    "flexcclForget": [_PTR, _SIZE],
    "flexcclFind": [_U64, _OUT_COMM],
    "flexcclReplaceLater": [_U64, _INT, _INFO],
    "flexcclChildren": [_COMM, _INT, ctypes.POINTER(Child), _OUT_INT],
    "flexcclSetTransport": [_INT],
    "flexcclSetTimeout": [_U64],
    "flexcclSetFault": [_TEXT],
    "flexcclSynchronize": [_COMM],
}


@functools.cache
def library() -> ctypes.CDLL:
    """Load libflexccl.so once and give its functions their types."""
    path = native_dir() / "libflexccl.so"
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeMissingError(f"the library [{path}] cannot be loaded: {error}") from None
    for name, arguments in _CHECKED.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = _INT, arguments
    for name, arguments in {"ncclGetErrorString": [_INT], "ncclGetLastError": [_COMM]}.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = _TEXT, arguments
    return loaded


def call(name: str, *arguments: Any) -> int:
    """Call a function of the library and return its result code. The GIL is free meanwhile."""
    return getattr(library(), name)(*arguments)


def last_sentence(comm: int | None) -> str:
    """Return the sentence of the last error of `comm`, or of this thread."""
    return (library().ncclGetLastError(comm) or b"").decode(errors="replace")


def get_int(name: str, *arguments: Any) -> tuple[int, int]:
    """Call a function whose last argument is an int to fill in; return (code, value)."""
    value = ctypes.c_int()
    return call(name, *arguments, ctypes.byref(value)), value.value


def get_int_first(name: str, *arguments: Any) -> tuple[int, int]:
    """As get_int, for functions whose first argument is the int to fill in."""
    value = ctypes.c_int()
    return call(name, ctypes.byref(value), *arguments), value.value


def get_unique_id() -> tuple[int, bytes]:
    """Return (code, the 128 bytes of a new unique id)."""
    made = UniqueId()
    return call("ncclGetUniqueId", ctypes.byref(made)), bytes(made)


def init_rank(nranks: int, unique_id: bytes, rank: int) -> tuple[int, int | None]:
    """Return (code, handle of a new communicator)."""
    handle = ctypes.c_void_p()
    wanted = UniqueId.from_buffer_copy(unique_id)
    return call("ncclCommInitRank", ctypes.byref(handle), nranks, wanted, rank), handle.value


def init_all(nranks: int) -> tuple[int, list[int]]:
    """Return (code, one handle per rank)."""
    handles = (ctypes.c_void_p * nranks)()
    code = call("ncclCommInitAll", handles, nranks, None)
    return code, [handle for handle in handles if handle]


def split(comm: int, color: int, key: int) -> tuple[int, int | None]:
    """Return (code, handle of this rank's part; None without a colour)."""
    handle = ctypes.c_void_p()
    return call("ncclCommSplit", comm, color, key, ctypes.byref(handle), None), handle.value


def shrink(comm: int, exclude: list[int], flags: int) -> tuple[int, int | None]:
    """Return (code, handle of the communicator of the others)."""
    handle = ctypes.c_void_p()
    ranks = (ctypes.c_int * max(len(exclude), 1))(*exclude)
    out = ctypes.byref(handle)
    return call("ncclCommShrink", comm, ranks, len(exclude), out, None, flags), handle.value


def create_pre_mul_sum(comm: int, scalar: bytes, dtype: int) -> tuple[int, int]:
    """Return (code, number of a new operator); the scalar is given in the bytes of `dtype`."""
    host_immediate = 1
    return get_int_first("ncclRedOpCreatePreMulSum", scalar, dtype, host_immediate, comm)


def export_info(comm: int, slot: int) -> tuple[int, bytes]:
    """Return (code, what a new process needs)."""
    info = Info()
    return call("ncclCommExportInfo", comm, slot, ctypes.byref(info)), bytes(info)


def init_new_node(exported: bytes, slot: int) -> tuple[int, int | None, bytes]:
    """Return (code, handle of a communicator to be, what the survivors need)."""
    handle, info = ctypes.c_void_p(), Info()
    given = Info.from_buffer_copy(exported)
    out = ctypes.byref(handle), ctypes.byref(given), slot, ctypes.byref(info)
    return call("ncclInitNewNode", *out), handle.value, bytes(info)


def call_with_info(name: str, *arguments: Any, info: bytes) -> int:
    """Call a function whose last argument is an info."""
    return call(name, *arguments, ctypes.byref(Info.from_buffer_copy(info)))


def get_state(comm: int) -> tuple[int, dict[str, int]]:
    """Return (code, the fields of flexcclState_t by name)."""
    state = State(size=ctypes.sizeof(State))
    code = call("flexcclGetState", comm, ctypes.byref(state))
    names = [field[0] for field in State._fields_ if field[0] != "size"]
    return code, {name: getattr(state, name) for name in names}


def find(number: int) -> int | None:
    """Return the handle of a communicator of this process, None when there is no such one."""
    handle = ctypes.c_void_p()
    call("flexcclFind", number, ctypes.byref(handle))
    return handle.value


def adopt(address: int, size: int, operation: int) -> tuple[int, int | None]:
    """Return (code, handle of the communicator whose records lie there)."""
    handle = ctypes.c_void_p()
    return call("flexcclAdopt", ctypes.byref(handle), address, size, operation), handle.value


def children(comm: int, slot: int) -> tuple[int, list[tuple[int, int]]]:
    """Return (code, (number, slot there) of the communicators made from this one with `slot`)."""
    room = ctypes.c_int(0)
    call("flexcclChildren", comm, slot, None, ctypes.byref(room))
    made = (Child * max(room.value, 1))()
    code = call("flexcclChildren", comm, slot, made, ctypes.byref(room))
    return code, [(child.comm, child.slot) for child in made[: room.value]]


def address_of(buffer: Any) -> int:
    """Return where the memory of a `bytes` or of a writable buffer object begins."""
    if isinstance(buffer, bytes):
        return ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value or 0
    view = memoryview(buffer)
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
