"""A host function in a CUDA graph, which is launched before and behind snapshots: how often it ran."""

from __future__ import annotations

import ctypes

import torch

STEPS, LAUNCHES = 8, 3

cuda = ctypes.CDLL(None)
runs: list[float] = []
weight = torch.nn.Parameter(torch.ones(4, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.5)
pinned = torch.zeros(1, pin_memory=True)
x = torch.zeros(1, device="cuda")
stream = torch.cuda.Stream()
torch.cuda.synchronize()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(_: int) -> None:
    """Note what the copy before has brought."""
    runs.append(pinned.item())


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    x.add_(1)
    pinned.copy_(x, non_blocking=True)
    cuda.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), function, None)
for step in range(STEPS):
    for _ in range(LAUNCHES):
        graph.replay()
    torch.cuda.synchronize()
    weight.grad = torch.full_like(weight, step)
    optimizer.step()
print(runs == [float(n) for n in range(1, STEPS * LAUNCHES + 1)], len(runs), weight.tolist())
