"""CUDA graphs as PyTorch uses them: replays have the bits of the same work done eagerly."""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn


def model(inner: int = 64) -> nn.Module:
    """Return a small network with a random part."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(32, inner), nn.GELU(), nn.Dropout(0.1), nn.Linear(inner, 8)
    ).cuda()


def warm_up(step: Callable[[], object], times: int = 3) -> None:
    """Run work on a side stream before it is captured, as PyTorch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(side)


def inference() -> None:
    """Replays draw the random numbers that eager calls draw, also for a new input."""
    net = model()
    x = torch.randn(16, 32, device="cuda")
    warm_up(lambda: net(x))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = net(x) + torch.rand(16, 8, device="cuda")
    for seed in (5, 6):
        x.copy_(torch.randn(16, 32, device="cuda"))
        torch.cuda.manual_seed(seed)
        eager = [net(x) + torch.rand(16, 8, device="cuda") for _ in range(3)]
        torch.cuda.manual_seed(seed)
        for wanted in eager:
            graph.replay()
            assert torch.equal(y, wanted)
    assert not torch.equal(eager[0], eager[1])


def train(graphed: bool) -> list[float]:
    """Return the losses of ten steps; everything but the data's copies is in one graph."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, capturable=True)
    xs = torch.randn(10, 16, 32, device="cuda")
    ys = torch.randn(10, 16, 8, device="cuda")
    x, y = xs[0].clone(), ys[0].clone()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    optimizer.zero_grad(set_to_none=True)
    if graphed:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
    losses = []
    torch.cuda.manual_seed(3)
    for i in range(10):
        x.copy_(xs[i])
        y.copy_(ys[i])
        if graphed:
            graph.replay()
        else:
            loss = step()
        losses.append(loss.item())
    return losses


def callables() -> None:
    """torch.cuda.make_graphed_callables: forward and backward are graphs of their own."""
    plain = nn.Linear(8, 8).cuda()
    sample = torch.randn(4, 8, device="cuda", requires_grad=True)
    x = torch.randn(4, 8, device="cuda")
    wanted = plain(x).pow(2).sum()
    wanted.backward()
    fresh = nn.Linear(8, 8).cuda()
    fresh.load_state_dict(plain.state_dict())
    graphed = torch.cuda.make_graphed_callables(fresh, (sample,))
    out = graphed(x).pow(2).sum()
    out.backward()
    assert torch.equal(out, wanted)
    assert torch.equal(fresh.weight.grad, plain.weight.grad)


def side_streams() -> None:
    """Work forked to another stream, memory of a private pool shared by two graphs."""
    x = torch.randn(64, device="cuda")
    side = torch.cuda.Stream()

    def work() -> torch.Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = x.cumsum(0)
        b = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return a + b

    wanted = work()
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        one = work()
    with torch.cuda.graph(second, pool=first.pool()):
        two = one + work()
    first.replay()
    second.replay()
    assert torch.equal(one, wanted)
    assert torch.equal(two, wanted + wanted)


def errors() -> None:
    """What a capture forbids is an error with CUDA's words, and the device goes on."""
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    message = "nothing was raised"
    try:
        with torch.cuda.graph(graph):
            x.sum().item()
    except RuntimeError as error:
        message = str(error)
    assert "during capture" in message, message
    assert x.sum().item() == 4


class KernelParams(ctypes.Structure):
    """cudaKernelNodeParams."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    ]


def parameters() -> None:
    """Kernel nodes: what they launch can be read, given to another node, and switched off."""
    cuda = ctypes.CDLL(None)
    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x.add_(1)
        y.add_(1)
    graph.instantiate()
    raw, launch = ctypes.c_void_p(graph.raw_cuda_graph()), graph.raw_cuda_graph_exec()
    nodes, count = (ctypes.c_void_p * 8)(), ctypes.c_size_t(8)
    assert cuda.cudaGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    assert count.value == 2
    first, second = ctypes.c_void_p(nodes[0]), ctypes.c_void_p(nodes[1])
    params = KernelParams()
    assert cuda.cudaGraphKernelNodeGetParams(first, ctypes.byref(params)) == 0
    assert params.block[0] > 0
    pointer = ctypes.c_void_p(launch)
    assert cuda.cudaGraphExecKernelNodeSetParams(pointer, second, ctypes.byref(params)) == 0
    graph.replay()
    assert (x[5].item(), y[5].item()) == (2, 0)
    assert cuda.cudaGraphNodeSetEnabled(pointer, first, 0) == 0
    graph.replay()
    assert (x[5].item(), y[5].item()) == (3, 0)
    params.block[0] = 4096
    assert cuda.cudaGraphKernelNodeSetParams(first, ctypes.byref(params)) == 9
    assert cuda.cudaGetLastError() == 9


def dump() -> None:
    """The debug print names the kernels."""
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.enable_debug_mode()
    with torch.cuda.graph(graph):
        x.add_(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        graph.debug_dump(str(path))
        text = path.read_text()
    assert text.startswith("digraph")
    assert "KERNEL" in text
    assert "elementwise" in text, text
    graph.instantiate()
    graph.replay()
    assert x.sum().item() == 8


if "compiled" in sys.argv:
    net = model()
    net[2].p = 0.0
    wanted = net(x := torch.randn(16, 32, device="cuda"))
    fast = torch.compile(net, mode="reduce-overhead")
    seen = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        seen.append(fast(x).detach().clone())
    assert all(torch.equal(seen[0], again) for again in seen)
    torch.testing.assert_close(seen[0], wanted)
    from torch._inductor.cudagraph_trees import get_container

    assert get_container(0).tree_manager is not None  # it did not fall back to plain launches
else:
    inference()
    assert train(True) == train(False)
    callables()
    # cudaMallocAsync frees in the side stream after the join, which no capture can hold.
    if "pool" not in sys.argv:
        side_streams()
        errors()
        parameters()
        dump()
print("ok")
