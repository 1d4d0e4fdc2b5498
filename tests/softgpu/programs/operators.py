"""Single operators: the soft GPU's results beside the CPU's."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F

torch.manual_seed(0)
failed: list[str] = []


def compare(name: str, function: Callable, *args: torch.Tensor, atol: float = 1e-5) -> None:
    """Run on both devices; remember the name if the results differ by more than atol."""
    on_cpu = function(*args)
    on_gpu = function(*(a.cuda() for a in args))
    pairs = zip(on_cpu, on_gpu, strict=True) if isinstance(on_cpu, tuple) else [(on_cpu, on_gpu)]
    for cpu, gpu in pairs:
        error = (cpu.double() - gpu.cpu().double()).abs().max().item()
        if not error <= atol:
            failed.append(f"{name}: off by {error}")


x, w = torch.randn(64, 300), torch.randn(300)
matrix, index = torch.randn(20, 300), torch.randint(0, 64, (50,))

for unary in (torch.exp, torch.tanh, torch.sin, torch.tril, F.gelu, torch.abs, torch.sigmoid):
    compare(unary.__name__, unary, x)
compare("sum", lambda a: a.sum(), x, atol=1e-3)
compare("sum rows", lambda a: a.sum(1), x, atol=1e-4)
compare("sum columns", lambda a: a.sum(0), x, atol=1e-4)
compare("max", lambda a: a.max(1).values, x, atol=0)
compare("argmax", lambda a: a.argmax(1), x, atol=0)
compare("softmax", lambda a: a.softmax(1), x)
compare("log_softmax", lambda a: a.log_softmax(1), x)
compare("layer_norm", lambda a, b: F.layer_norm(a, (300,), b, b), x, w)
compare("cumsum", lambda a: a.cumsum(1), x, atol=1e-4)
compare("embedding", lambda a, i: F.embedding(i, a), x, index, atol=0)
compare("cross_entropy", lambda a, i: F.cross_entropy(a[:50], i), x, index)
compare("sort", lambda a: tuple(a.sort(1)), x, atol=0)
compare("topk", lambda a: tuple(a.topk(5)), x, atol=0)
compare("nonzero", lambda a: (a > 0).nonzero(), x, atol=0)
compare("norm", lambda a: a.norm(), x, atol=1e-4)
compare("half", lambda a: (a.half() * 2).float(), x, atol=0)
compare("double", lambda a: a.double().sqrt().nan_to_num(), x, atol=1e-15)
compare("linear", lambda a, b: F.linear(a, b, b[:, 0]), x, matrix, atol=1e-4)
compare("relu(linear)", lambda a, b: F.relu(F.linear(a, b, b[:, 0])), x, matrix, atol=1e-4)
compare(
    "gelu(linear)",
    lambda a, b: torch._addmm_activation(b[:, 0], a, b.t(), use_gelu=True),
    x,
    matrix,
    atol=1e-3,
)
compare(
    "linear 64",
    lambda a, b: F.linear(a.double(), b.double(), b[:, 0].double()),
    x,
    matrix,
    atol=1e-12,
)
compare("matmul 64", lambda a, b: a.double() @ b.double().t(), x, matrix, atol=1e-12)
compare("matrix times vector", lambda a, b: a @ b, x, w, atol=1e-4)
compare("dot", lambda a: a[0] @ a[1], x, atol=1e-4)
compare(
    "index_add",
    lambda a, i: torch.zeros_like(a).index_add_(0, i, a[:50]),
    x,
    index,
    atol=1e-4,
)

permutation = torch.randperm(1000, device="cuda")
if not permutation.sort()[0].equal(torch.arange(1000, device="cuda")):
    failed.append("randperm is no permutation")
drawn = torch.multinomial(torch.tensor([[0.0, 1.0, 0.0]], device="cuda"), 1)
if drawn.item() != 1:
    failed.append(f"multinomial drew {drawn.item()}")
normal = torch.randn(100000, device="cuda")
if abs(normal.mean().item()) > 0.02 or abs(normal.std().item() - 1) > 0.02:
    failed.append("randn is not normal")

sys.exit("\n".join(failed) or 0)
