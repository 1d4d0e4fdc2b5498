"""Host functions in streams: order, exactly once, in graphs, with the interpreter's lock, long ones."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import torch

cuda = ctypes.CDLL(None)
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
kept: list[object] = []  # ctypes functions must live until they have run


def launch(stream: torch.cuda.Stream, function: object, data: int = 0) -> int:
    """Append a host function to the stream."""
    kept.append(HOST_FUNCTION(function))
    return cuda.cudaLaunchHostFunc(
        ctypes.c_void_p(stream.cuda_stream), kept[-1], ctypes.c_void_p(data)
    )


def callback(stream: torch.cuda.Stream, function: object, data: int = 0, flags: int = 0) -> int:
    """Append a callback to the stream."""
    kept.append(CALLBACK(function))
    handle = ctypes.c_void_p(stream.cuda_stream)
    return cuda.cudaStreamAddCallback(handle, kept[-1], ctypes.c_void_p(data), flags)


def in_order() -> None:
    """Many on two streams: each once, in the order of its stream, with work in between."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    seen: list[list[int]] = [[], []]
    x = [torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")]
    torch.cuda.synchronize()
    for i in range(100):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                x[k].add_(1)
            launch(stream, lambda data, k=k: seen[k].append(data or 0), i)
    for stream in streams:
        stream.synchronize()
    print("in order", seen == [list(range(100))] * 2, x[0][0].item(), x[1][0].item())


def feeds_a_copy() -> None:
    """What the function writes is what the copy behind it reads, on another stream too."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    pinned = torch.zeros(1000, pin_memory=True)
    on_device = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    for value in range(1, 4):
        first.wait_stream(second)  # the copy before has read the buffer

        def fill(data: int, value: int = value) -> None:
            time.sleep(0.02)
            pinned.fill_(value)

        launch(first, fill)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            on_device.add_(pinned.to("cuda", non_blocking=True))
    second.synchronize()
    print("feeds a copy", on_device.sum().item())


def long_one() -> None:
    """A function that waits for the program holds up its own stream only."""
    slow, fast = torch.cuda.Stream(), torch.cuda.Stream()
    go, order = threading.Event(), []
    x, y = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    launch(slow, lambda data: order.append(go.wait(60)))
    with torch.cuda.stream(slow):
        x.add_(1)
    with torch.cuda.stream(fast):
        y.add_(2)
    fast.synchronize()
    order.append("fast")
    print("long one", slow.query(), end=" ")
    go.set()
    slow.synchronize()
    print(order, x.sum().item(), y.sum().item())


def told() -> None:
    """A callback gets its stream, the state and its data; flags must be 0."""
    stream = torch.cuda.Stream()
    got: list[tuple] = []
    wrong = callback(stream, lambda *a: None, 0, 1)
    right = callback(stream, lambda s, status, data: got.append((s, status, data)), 77)
    default = callback(torch.cuda.default_stream(), lambda *a: got.append(a))
    torch.cuda.synchronize()
    print("told", wrong, right, default, got == [(stream.cuda_stream, 0, 77), (None, 0, None)])
    cuda.cudaGetLastError()


def in_graphs() -> None:
    """A captured function runs at each launch; callbacks cannot be captured."""
    runs: list[float] = []
    pinned = torch.zeros(1, pin_memory=True)
    x = torch.zeros(1, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        x.add_(1)
        pinned.copy_(x, non_blocking=True)
        launch(stream, lambda data: runs.append(pinned.item()))
        x.mul_(2)
    print("captured", runs, end=" ")
    for _ in range(4):
        graph.replay()
    torch.cuda.synchronize()
    print(runs, x.item(), end=" ")
    code = 0
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            code = callback(stream, lambda *a: runs.append(-1.0))
            cuda.cudaGetLastError()
    except RuntimeError:
        print("broken", code, len(runs))


def refused() -> None:
    stream = torch.cuda.Stream()
    null = ctypes.cast(None, HOST_FUNCTION)
    handle = ctypes.c_void_p(stream.cuda_stream)
    print("refused", cuda.cudaLaunchHostFunc(handle, null, None), end=" ")
    print(cuda.cudaGetLastError(), (torch.ones(3, device="cuda") + 1).sum().item())


def exits() -> None:
    """A function nobody waits for does not keep the program from ending."""
    launch(torch.cuda.Stream(), lambda data: time.sleep(600))
    print("exits", flush=True)


if __name__ == "__main__":
    for test in (in_order, feeds_a_copy, long_one, told, in_graphs, refused, exits):
        test()
    os._exit(0)  # the interpreter's own end would wait for the thread in the last function
