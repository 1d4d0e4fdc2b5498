"""Default streams of threads: handle 2, and the null stream of the _ptsz and _ptds calls."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import torch
from callbacks import HOST_FUNCTION, cuda

OWN = ctypes.c_void_p(2)  # cudaStreamPerThread
NOT_READY, PER_THREAD_FLAG = 600, 2


def in_thread(work: Callable[[], object]) -> object:
    """Return what the function returns in a thread of its own."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(60)
    return results[0]


def stream_id() -> int:
    number = ctypes.c_ulonglong()
    assert cuda.cudaStreamGetId(OWN, ctypes.byref(number)) == 0
    return number.value


def independent() -> None:
    """What one thread's stream waits for holds up neither another thread's nor created streams."""
    go = threading.Event()
    wait = HOST_FUNCTION(lambda data: go.wait(60) and None)
    x = torch.zeros(256, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    address = ctypes.c_void_p(x.data_ptr())
    assert cuda.cudaLaunchHostFunc_ptsz(None, wait, None) == 0
    assert cuda.cudaMemsetAsync_ptsz(address, 1, 128, None) == 0

    def other() -> tuple[int, int, int]:
        host = (ctypes.c_ubyte * 2)()
        middle = ctypes.c_void_p(x.data_ptr() + 127)
        first = cuda.cudaMemsetAsync(ctypes.c_void_p(x.data_ptr() + 128), 2, 128, OWN)
        second = cuda.cudaMemcpy_ptds(host, middle, 2, 2)
        return first, second, cuda.cudaStreamSynchronize(OWN), *host

    print("independent", in_thread(other), cuda.cudaStreamQuery(OWN) == NOT_READY, end=" ")
    cuda.cudaGetLastError()
    go.set()
    print(cuda.cudaStreamSynchronize(OWN), x.tolist()[126:130])


def blocking() -> None:
    """The legacy stream waits for the threads' streams, and they for it."""
    go = threading.Event()
    wait = HOST_FUNCTION(lambda data: go.wait(60) and None)
    x = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    cuda.cudaLaunchHostFunc(OWN, wait, None)
    with torch.cuda.stream(torch.cuda.ExternalStream(2)):
        x.add_(1)
    x.mul_(3)
    handover = cuda.cudaStreamQuery(None)
    cuda.cudaGetLastError()
    go.set()
    print("blocking", handover == NOT_READY, x.tolist())


def libraries() -> None:
    """cuBLAS on the calling thread's stream, whichever thread set it."""
    a, b = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    wanted = a @ b
    torch.cuda.synchronize()

    def product() -> bool:
        with torch.cuda.stream(torch.cuda.ExternalStream(2)):
            c = a @ b
        cuda.cudaStreamSynchronize(OWN)
        return torch.equal(c, wanted)

    print("libraries", product(), [in_thread(product) for _ in range(3)])


def looked_up() -> None:
    """A program that wants the per-thread variants gets them by the same names."""
    found = []
    for flags in (0, PER_THREAD_FLAG):
        pointer, state = ctypes.c_void_p(), ctypes.c_int()
        name, flag = b"cuMemcpyHtoDAsync", ctypes.c_ulonglong(flags)
        arguments = (ctypes.byref(pointer), 13000, flag, ctypes.byref(state))
        assert cuda.cuGetProcAddress_v2(name, *arguments) == 0
        found.append(pointer.value)
    print("looked up", found[0] != found[1], all(found))


if __name__ == "__main__":
    ids = {stream_id(), stream_id(), *(in_thread(stream_id) for _ in range(20))}
    print("streams", len(ids))
    independent()
    blocking()
    libraries()
    looked_up()
    print("no end", cuda.cudaStreamDestroy(OWN) != 0, cuda.cudaGetLastError() != 0)
