"""Two devices, a stream of the program's own and a graph, under torch.profiler.

Prints a line for each row of the devices: device, name, whose call it belongs to.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    """Entry point."""
    first = torch.arange(64.0, device="cuda:0")
    second = torch.ones(64, device="cuda:1")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = first * 2
        third = doubled + 1
    side = torch.cuda.Stream("cuda:1")
    memset = ctypes.CDLL(None).cudaMemsetAsync
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        graph.replay()
        graph.replay()
        with torch.cuda.stream(side):
            second.mul_(3)
        side.synchronize()
        memset(ctypes.c_void_p(first.data_ptr()), 0, ctypes.c_size_t(256), None)
        host = second.cpu()
    print("sums", third.sum().item(), host.sum().item())
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        trace = json.loads(Path(folder, "trace.json").read_text())
    complete = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    calls = {
        event["args"]["correlation"]: event["name"]
        for event in complete
        if event.get("cat") in {"cuda_runtime", "cuda_driver"}
    }
    for row in sorted(complete, key=lambda event: event["ts"]):
        if row.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}:
            launch = calls[row["args"]["correlation"]]
            print("row", row["args"]["device"], row["name"].split("<")[0], launch)


if __name__ == "__main__":
    main()
