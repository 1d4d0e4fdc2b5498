"""Names and structures that CUDA 12's runtime has and CUDA 13's has not."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
from callbacks import cuda

TABLE = Path(__file__).resolve().parents[3] / "tools" / "gen" / "device_properties.txt"
SHOWN = (
    "totalGlobalMem",
    "sharedMemPerBlock",
    "regsPerBlock",
    "warpSize",
    "maxThreadsPerBlock",
    "maxThreadsDim",
    "maxGridSize",
    "clockRate",
    "major",
    "minor",
    "multiProcessorCount",
    "memoryClockRate",
    "l2CacheSize",
    "maxThreadsPerMultiProcessor",
    "sharedMemPerMultiprocessor",
    "singleToDoublePrecisionPerfRatio",
    "sharedMemPerBlockOptin",
    "maxBlocksPerMultiProcessor",
)
BYTES = 1032


def fields() -> dict[str, tuple[int, int]]:
    """Return the place and the size of each field."""
    rows = (line.split() for line in TABLE.read_text().splitlines() if line[0] != "#")
    return {row[2]: (int(row[0]), int(row[1])) for row in rows}


def properties() -> dict[str, str]:
    """Return what cudaGetDeviceProperties_v2 writes; nothing behind the structure."""
    buffer = (ctypes.c_ubyte * (BYTES + 8))(*[0xA5] * (BYTES + 8))
    assert cuda.cudaGetDeviceProperties_v2(buffer, 0) == 0
    raw = bytes(buffer)
    assert raw[BYTES:] == b"\xa5" * 8
    where = fields()
    assert sum(where["reserved"]) == BYTES
    found = {"name": raw[:256].split(b"\0")[0].decode()}
    for name in SHOWN:
        at, size = where[name]
        width = 8 if size == 8 else 4
        numbers = [
            int.from_bytes(raw[i : i + width], "little") for i in range(at, at + size, width)
        ]
        found[name] = " ".join(map(str, numbers))
    return found


def capture_info(name: str, stream: int, edges: bool) -> str:
    """Return a stream's status and whether it has an id."""
    status, id = ctypes.c_int(-1), ctypes.c_ulonglong()
    rest = [None] * (4 if edges else 3)
    call = getattr(cuda, name)
    code = call(ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(id), *rest)
    return f"{code} {status.value} {id.value != 0}"


def main() -> None:
    device = torch.cuda.get_device_properties(0)
    found = properties()
    for name, value in found.items():
        print(name, value)
    assert found["name"] == device.name
    assert int(found["totalGlobalMem"]) == device.total_memory
    assert int(found["multiProcessorCount"]) == device.multi_processor_count
    assert cuda.cudaGetDeviceProperties_v2(None, 0) == 1
    assert cuda.cudaGetDeviceProperties_v2((ctypes.c_ubyte * BYTES)(), 99) == 101
    assert cuda.cudaGetLastError() == 101

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(1000, device="cuda").sum()
    end.record()
    torch.cuda.synchronize()
    elapsed = ctypes.c_float(-1)
    events = (ctypes.c_void_p(start.cuda_event), ctypes.c_void_p(end.cuda_event))
    assert cuda.cudaEventElapsedTime_v2(ctypes.byref(elapsed), *events) == 0
    print("time passes", elapsed.value > 0)

    x, graph = torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph(keep_graph=True)
    names = [("cudaStreamGetCaptureInfo_v2", False), ("cudaStreamGetCaptureInfo_v3", True)]
    for name, edges in names:
        print(name, capture_info(name, torch.cuda.current_stream().cuda_stream, edges))
    with torch.cuda.graph(graph):
        x.add_(1)
        x.mul_(2)
        for name, edges in names:
            print(name, capture_info(name, torch.cuda.current_stream().cuda_stream, edges))

    if runtime := sys.argv[1:]:
        other_parameters(graph, *runtime)


def other_parameters(graph: torch.cuda.CUDAGraph, runtime: str) -> None:
    """Call functions that have other parameters once the runtime of CUDA 12 is loaded."""
    count = ctypes.c_size_t(8)
    nodes, before = (ctypes.c_void_p * 8)(), (ctypes.c_void_p * 8)()
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    assert cuda.cudaGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    last, size = ctypes.c_void_p(nodes[count.value - 1]), ctypes.c_size_t(8)
    assert cuda.cudaGraphNodeGetDependencies(last, before, None, ctypes.byref(size)) == 0
    ctypes.CDLL(runtime)
    after, again = (ctypes.c_void_p * 8)(), ctypes.c_size_t(8)
    assert cuda.cudaGraphNodeGetDependencies(last, after, ctypes.byref(again)) == 0
    assert (size.value, list(before)) == (again.value, list(after))
    assert size.value == 1, "the second kernel waits for the first"
    assert cuda.cudaMemcpyBatchAsync(*[None] * 8) == 801


if __name__ == "__main__":
    main()
