"""Parts of PyTorch around the operators, each compared with the CPU or with what it promises."""

from __future__ import annotations

import copy
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile


def same(gpu: torch.Tensor, cpu: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(gpu.cpu().to(cpu.dtype), cpu, rtol=tolerance, atol=tolerance)


def integer_products() -> None:
    a, b = torch.randint(-128, 128, (2, 40, 40), dtype=torch.int8)
    same(torch._int_mm(a.cuda(), b.cuda()), a.int() @ b.int(), 0)


def attention_kernels() -> None:
    q, k, v = torch.randn(3, 2, 4, 33, 32)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 5e-3)):
            with sdpa_kernel(backend):
                inputs = [t.to("cuda", dtype) for t in (q, k, v)]
                same(F.scaled_dot_product_attention(*inputs, is_causal=True), expected, tolerance)


def gradients_per_sample() -> None:
    net = nn.Linear(4, 3)
    x = torch.randn(5, 4)

    def gradients(device: str) -> torch.Tensor:
        own = copy.deepcopy(net).to(device)

        def loss(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            return functional_call(own, parameters, row).square().sum()

        return vmap(grad(loss), (None, 0))(dict(own.named_parameters()), x.to(device))["weight"]

    same(gradients("cuda"), gradients("cpu"))
    curvature = hessian(lambda t: (t**3).sum())
    same(curvature(x[0].cuda()), curvature(x[0]))


def ragged_tensors() -> None:
    parts, layer = [torch.randn(n, 8) for n in (3, 5, 2)], nn.Linear(8, 8)
    for layout in (torch.strided, torch.jagged):
        results = []
        for device in ("cuda", "cpu"):
            nested = torch.nested.nested_tensor([p.to(device) for p in parts], layout=layout)
            result = copy.deepcopy(layer).to(device)(nested)
            results.append(torch.nested.to_padded_tensor(result, 0.0))
        same(*results)


def line_search() -> None:
    x, y = torch.randn(30, 10), torch.randint(0, 3, (30,))
    net = nn.Linear(10, 3)

    def search(device: str) -> torch.Tensor:
        own = copy.deepcopy(net).to(device)
        optimizer = torch.optim.LBFGS(own.parameters(), line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(own(x.to(device)), y.to(device))
            loss.backward()
            return loss

        optimizer.step(closure)
        return closure().detach()

    same(search("cuda"), search("cpu"), 1e-3)


def fused_optimizers() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    x = torch.ones(4, 8)
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        for form in ("foreach", "fused"):
            results = []
            for device in ("cuda", "cpu"):
                own = copy.deepcopy(net).to(device)
                optimizer = kind(own.parameters(), lr=0.01, **{form: True})
                for _ in range(3):
                    optimizer.zero_grad()
                    own(x.to(device)).square().mean().backward()
                    optimizer.step()
                results.append(own[0].weight.detach())
            same(*results)


def copies_on_side_streams() -> None:
    first, second, done = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    a = torch.randn(64, 64)
    with torch.cuda.stream(first):
        product = a.pin_memory().to("cuda", non_blocking=True) @ a.cuda()
        done.record()
    second.wait_event(done)
    with torch.cuda.stream(second):
        product.record_stream(second)
        back = torch.empty(64, 64, pin_memory=True).copy_(product + 1, non_blocking=True)
    second.synchronize()
    same(back, a @ a + 1, 1e-4)


def threads_with_streams() -> None:
    sums: dict[int, float] = {}

    def work(k: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((100,), float(k), device="cuda", requires_grad=True)
            for _ in range(10):
                (x * x).sum().backward()
            torch.cuda.synchronize()
            sums[k] = x.grad.sum().item()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sums == {k: 2000.0 * k for k in range(4)}, sums


def measuring() -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        start.record()
        torch.ones(64, 64, device="cuda").matmul(torch.ones(64, 64, device="cuda"))
        end.record()
        torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert any(event.name == "aten::matmul" for event in recorded.events())
    torch.cuda.memory._record_memory_history()
    kept = torch.ones(1000, device="cuda")
    assert torch.cuda.memory._snapshot()["segments"]
    torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.cuda.memory_allocated() >= kept.nbytes
    assert torch.cuda.memory_summary()


def second_device() -> None:
    a = torch.randn(32, 32)
    moved = a.cuda(0).to("cuda:1")
    same((moved @ moved).to("cuda:0"), a @ a, 1e-4)
    layers = [nn.Linear(32, 32).to(f"cuda:{i}") for i in range(2)]
    layers[1](layers[0](a.cuda(0)).to("cuda:1")).sum().backward()
    assert layers[0].weight.grad.device.index == 0


def missing_libraries_say_so() -> None:
    square = torch.eye(4, device="cuda")
    for call in (torch.linalg.inv, torch.linalg.svd):
        message = ""
        try:
            call(square)
        except RuntimeError as error:
            message = str(error)
        assert "cusolver" in message, message
    same(square @ square, torch.eye(4))  # the device goes on


torch.manual_seed(0)
for check in (
    integer_products, attention_kernels, gradients_per_sample, ragged_tensors, line_search,
    fused_optimizers, copies_on_side_streams, threads_with_streams, measuring, second_device,
    missing_libraries_say_so,
):  # fmt: skip
    print(check.__name__, flush=True)
    check()
