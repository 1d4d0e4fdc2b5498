"""CUDA graphs: branches, a whole training step with dropout, graphed callables, a broken capture."""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from collections.abc import Callable

import torch
from torch import nn

warnings.filterwarnings("ignore", message="The AccumulateGrad node")

RUNTIME = ctypes.CDLL(None)


def warm_up(step: Callable[[], object], times: int) -> None:
    """Run on a side stream, as PyTorch asks before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(side)


def branches() -> None:
    x = torch.zeros(16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    warm_up(lambda: (x * 2).relu() + 1, 2)
    with torch.cuda.graph(graph):
        left = (x * 2).relu() + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            right = x + 5
        torch.cuda.current_stream().wait_stream(side)
        both = left + right
    for value in range(3):
        x.fill_(float(value))
        graph.replay()
        print("branches", both[0].item())


def told_early() -> None:
    """PyTorch 2.14 asks for the graph that is being captured, and keeps its handle."""
    x = torch.zeros(4, device="cuda")
    warm_up(lambda: x + 1, 2)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    handles = []
    with torch.cuda.graph(graph):
        x += 1
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for _ in range(2):
            status, found = ctypes.c_int(), ctypes.c_void_p()
            wanted = (ctypes.byref(status), None, ctypes.byref(found), None, None, None)
            assert RUNTIME.cudaStreamGetCaptureInfo(stream, *wanted) == 0
            handles.append((found.value, status.value))
    same = {handle for handle, _ in handles} == {graph.raw_cuda_graph()}
    graph.replay()
    print("told early", same, handles[0][1], x[0].item())


def training_step() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)
    x = torch.randn(16, 32, device="cuda")
    wanted = torch.randint(8, (16,), device="cuda")

    def step() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    def whole_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        step()

    warm_up(whole_step, 3)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(4):
        x.copy_(torch.randn(16, 32))
        graph.replay()
        print("loss", loss.item().hex())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print("hash", digest.hexdigest()[:16])


def callables() -> None:
    sample = torch.randn(4, 8, device="cuda", requires_grad=True)
    layer = torch.cuda.make_graphed_callables(nn.Linear(8, 8).cuda(), (sample,))
    given = torch.randn(4, 8, device="cuda", requires_grad=True)
    layer(given).sum().backward()
    print("gradient", given.grad.sum().item().hex())


def broken() -> None:
    """A synchronisation inside a capture is an error, and the device goes on working."""
    x = torch.ones(4, device="cuda")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
    except RuntimeError as error:
        print("refused", "capture" in str(error))
    print("after", (x + 1).sum().item())


torch.manual_seed(0)
branches()
told_early()
training_step()
callables()
broken()
