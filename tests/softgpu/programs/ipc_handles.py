"""IPC handles by themselves, without PyTorch: what they open, and what is refused.

Started again with two handles as arguments, this program is the other process.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

cuda = ctypes.CDLL(None)
INVALID_VALUE, CONTEXT, MAP_FAILED, HANDLE = 1, 201, 205, 400
LAZY_PEER_ACCESS, DEVICE_TO_HOST = 1, 2
TIMING_OFF, INTERPROCESS = 2, 4


class Handle(ctypes.Structure):
    """cudaIpcMemHandle_t and cudaIpcEventHandle_t."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def check(status: int, wanted: int = 0) -> None:
    """Stop with the number if a call's answer is another one."""
    if status != wanted:
        raise SystemExit(f"a call returned [{status}] instead of [{wanted}]")


def first_bytes(address: ctypes.c_void_p) -> list[int]:
    """Return the first four bytes of device memory."""
    values = (ctypes.c_ubyte * 4)()
    check(cuda.cudaMemcpy(values, address, 4, DEVICE_TO_HOST))
    return list(values)


def child(memory: Handle, mark: Handle) -> None:
    """Open both twice, wait for the event, change the memory, record the event."""
    address, again, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cudaIpcOpenEventHandle(ctypes.byref(event), mark))
    check(cuda.cudaEventSynchronize(event))
    check(cuda.cudaIpcOpenMemHandle(ctypes.byref(address), memory, LAZY_PEER_ACCESS))
    check(cuda.cudaIpcOpenMemHandle(ctypes.byref(again), memory, LAZY_PEER_ACCESS))
    assert address.value == again.value
    assert first_bytes(address) == [5, 5, 5, 5]
    check(cuda.cudaMemsetAsync(address, 9, 2, None))
    check(cuda.cudaEventRecord(event, None))
    check(cuda.cudaStreamWaitEvent(None, event, 0))
    check(cuda.cudaDeviceSynchronize())
    check(cuda.cudaIpcGetMemHandle(ctypes.byref(Handle()), address), INVALID_VALUE)
    check(cuda.cudaFree(address), INVALID_VALUE)
    check(cuda.cudaIpcCloseMemHandle(address))
    check(cuda.cudaIpcCloseMemHandle(address))
    check(cuda.cudaIpcCloseMemHandle(address), INVALID_VALUE)
    check(cuda.cudaEventDestroy(event))


def refusals(memory: Handle) -> None:
    """Handles of this process, of nobody, and of files that mean something else."""
    address = ctypes.c_void_p()
    opened = ctypes.byref(address)
    check(cuda.cudaIpcOpenMemHandle(opened, memory, LAZY_PEER_ACCESS), CONTEXT)
    check(cuda.cudaIpcOpenMemHandle(opened, Handle(), LAZY_PEER_ACCESS), HANDLE)
    other = Handle.from_buffer_copy(memory)
    other.bytes[8:12] = [1, 0, 0, 0]  # a process that has no such file
    check(cuda.cudaIpcOpenMemHandle(opened, other, LAZY_PEER_ACCESS), MAP_FAILED)
    other.bytes[39] = 127  # a place behind the end of the file
    check(cuda.cudaIpcOpenMemHandle(opened, other, LAZY_PEER_ACCESS), HANDLE)
    pooled = ctypes.c_void_p()
    check(cuda.cudaMallocAsync(ctypes.byref(pooled), 1000, None))
    check(cuda.cudaIpcGetMemHandle(ctypes.byref(Handle()), pooled), INVALID_VALUE)


def parent() -> None:
    """Export memory and an event, let another process use them."""
    address, event = ctypes.c_void_p(), ctypes.c_void_p()
    memory, mark = Handle(), Handle()
    check(cuda.cudaMalloc(ctypes.byref(address), 1000))
    check(cuda.cudaMemset(address, 4, 1000))
    check(cuda.cudaIpcGetMemHandle(ctypes.byref(memory), address))
    check(cuda.cudaEventCreateWithFlags(ctypes.byref(event), INTERPROCESS), INVALID_VALUE)
    check(cuda.cudaEventCreateWithFlags(ctypes.byref(event), INTERPROCESS | TIMING_OFF))
    check(cuda.cudaIpcGetEventHandle(ctypes.byref(mark), event))
    refusals(memory)
    check(cuda.cudaMemsetAsync(address, 5, 1000, None))
    check(cuda.cudaEventRecord(event, None))
    handles = [bytes(handle).hex() for handle in (memory, mark)]
    subprocess.run([sys.executable, __file__, *handles], check=True)
    check(cuda.cudaEventQuery(event))
    assert first_bytes(address) == [9, 9, 5, 5]
    check(cuda.cudaFree(address))


while cuda.cudaGetLastError():
    pass
if len(sys.argv) == 3:
    child(*(Handle.from_buffer_copy(bytes.fromhex(text)) for text in sys.argv[1:]))
else:
    parent()
    print("ok")
