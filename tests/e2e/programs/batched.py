"""Trains on batches that one call copies, and counts with a kernel of a library in a file.

batched.py FATBIN STEPS. Prints what each step has, and before that what the calls refuse.
"""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import nn

CUDA = ctypes.CDLL(None)  # the runtime's and the driver's functions, wherever they come from
IN_STREAM_ORDER, DURING_THE_CALL = 1, 2
CLUSTER_DIMENSION = 4
Pairs = list[tuple[int, int, int]]  # destination, source, bytes


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Attributes(ctypes.Structure):
    _fields_ = [
        ("order", ctypes.c_int),
        ("source", Location),
        ("destination", Location),
        ("flags", ctypes.c_uint),
    ]


class LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


def check(code: int, call: str) -> None:
    assert code == 0, f"{call} returns {code}"


def batch(
    pairs: Pairs, orders: list[int], stream: int, first: list[int] | None = None
) -> tuple[tuple, ctypes.c_void_p]:
    """Return the parameters of a batch of (destination, source, bytes), as far as the stream."""
    count = len(pairs)
    attributes = (Attributes * len(orders))(*(Attributes(order) for order in orders))
    first = (ctypes.c_size_t * len(orders))(*(first or range(len(orders))))
    columns = [(ctypes.c_uint64 * count)(*column) for column in list(zip(*pairs, strict=True))[:2]]
    sizes = (ctypes.c_size_t * count)(*(pair[2] for pair in pairs))
    head = (*columns, sizes, ctypes.c_size_t(count), attributes, first)
    return (*head, ctypes.c_size_t(len(orders))), ctypes.c_void_p(stream)


def copy(pairs: Pairs, orders: list[int], stream: int) -> None:
    head, where = batch(pairs, orders, stream)
    check(CUDA.cudaMemcpyBatchAsync(*head, where), "cudaMemcpyBatchAsync")


def refused(stream: int) -> None:
    """What is no batch: no copy of it is at fault."""
    a, b = torch.zeros(4), torch.zeros(4, device="cuda")
    pair = (b.data_ptr(), a.data_ptr(), 16)
    failed = ctypes.c_size_t()

    def past(
        pairs: Pairs, orders: list[int], where: int, first: list[int] | None = None
    ) -> tuple[int, int]:
        head, place = batch(pairs, orders, where, first)
        code = CUDA.cuMemcpyBatchAsync(*head, ctypes.byref(failed), place)
        return code, ctypes.c_ssize_t(failed.value).value

    print("null stream", past([pair], [IN_STREAM_ORDER], 0))
    print("no order", past([pair], [0], stream))
    print("attributes", past([pair, pair], [1, 1], stream, first=[0, 2]))
    print("beyond", past([pair], [IN_STREAM_ORDER], stream, first=[1]))
    CUDA.cudaGetLastError()


class Counter:
    def __init__(self, file: str) -> None:
        library, self._count = ctypes.c_void_p(), ctypes.c_void_p()
        nothing = (None, None, 0, None, None, 0)
        code = CUDA.cudaLibraryLoadFromFile(ctypes.byref(library), file.encode(), *nothing)
        check(code, "cudaLibraryLoadFromFile")
        missing = CUDA.cudaLibraryLoadFromFile(ctypes.byref(library), b"/no/such/file", *nothing)
        number = ctypes.c_uint()
        check(CUDA.cudaLibraryGetKernelCount(ctypes.byref(number), library), "count")
        name = ctypes.byref(self._count)
        check(CUDA.cudaLibraryGetKernel(name, library, b"count"), "cudaLibraryGetKernel")
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        where = (ctypes.byref(address), ctypes.byref(size), library, b"step_width")
        check(CUDA.cudaLibraryGetGlobal(*where), "cudaLibraryGetGlobal")
        print("library", number.value, size.value, missing, CUDA.cudaGetLastError())

    def clusters(self, size: int, call: str = "cudaOccupancyMaxActiveClusters") -> tuple[int, int]:
        """Ask how many clusters of that many blocks the device holds."""
        attribute = (ctypes.c_uint * 18)(CLUSTER_DIMENSION, 0, size, 1, 1)
        where = ctypes.addressof(attribute)
        config = LaunchConfig((size, 1, 1), (64, 1, 1), 0, None, where, 1)
        found = ctypes.c_int(-1)
        code = getattr(CUDA, call)(ctypes.byref(found), self._count, ctypes.byref(config))
        CUDA.cudaGetLastError()
        return code, found.value

    def count(self, out: torch.Tensor) -> None:
        address = ctypes.c_uint64(out.data_ptr())
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [ctypes.c_uint(1)] * 6
        check(CUDA.cuLaunchKernel(self._count, *shape, 0, stream, parameters, None), "launch")


def main() -> None:
    steps = int(sys.argv[2])
    torch.manual_seed(1)
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    side = torch.cuda.Stream()
    refused(side.cuda_stream)
    counter = Counter(sys.argv[1])
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    code, clusters = counter.clusters(1)
    print("clusters", code, clusters > 0 and clusters % blocks == 0, counter.clusters(2))
    print("largest", counter.clusters(1, "cudaOccupancyMaxPotentialClusterSize"))
    total = torch.zeros(1, dtype=torch.int64, device="cuda")
    pageable, pinned = torch.empty(4, 8), torch.empty(4, 8, pin_memory=True)
    on_gpu = [torch.empty(4, 8, device="cuda") for _ in range(3)]
    back = torch.empty(4, 8, pin_memory=True)
    for step in range(1, steps + 1):
        pageable.fill_(step)
        pinned.copy_(torch.arange(32).view(4, 8) * step)
        sources = [pageable, pinned, model.weight.detach()[:4]]
        pairs = [(b.data_ptr(), a.data_ptr(), 128) for a, b in zip(sources, on_gpu, strict=True)]
        side.wait_stream(torch.cuda.current_stream())
        copy(pairs, [DURING_THE_CALL, IN_STREAM_ORDER], side.cuda_stream)
        copy([(back.data_ptr(), on_gpu[1].data_ptr(), 128)], [IN_STREAM_ORDER], side.cuda_stream)
        side.synchronize()
        pinned.zero_()
        assert torch.equal(back, torch.arange(32.0).view(4, 8) * step)
        loss = model(sum(on_gpu) / 100).square().mean()
        optimizer.zero_grad()
        loss.backward()
        counter.count(total)
        optimizer.step()
        print(f"step={step} loss={loss.item()!r} counter={total.item()}", flush=True)


if __name__ == "__main__":
    main()
