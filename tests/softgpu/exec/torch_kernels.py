"""Runs operators of the installed PyTorch on the soft GPU and on the CPU and compares.

A program of its own: the soft GPU has to be preloaded before torch. Each line printed is
"ok NAME ERROR" or "BAD NAME ERROR"; test_torch_kernels.py reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (the name everybody uses)
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Operator = Callable[..., object]
torch.backends.cudnn.enabled = False


def outputs(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    assert isinstance(result, (tuple, list))
    return list(result)


def error(cpu: Tensor, gpu: Tensor) -> float:
    if not cpu.dtype.is_floating_point:
        return float((cpu != gpu).sum())
    if not torch.equal(cpu.isnan(), gpu.isnan()):
        return float("inf")
    difference = (cpu.double() - gpu.double()).abs() / (1 + cpu.double().abs())
    return float(difference.nan_to_num(0).max()) if cpu.numel() else 0.0


def check(name: str, operator: Operator, *inputs: Tensor, tolerance: float = 1e-5) -> None:
    expected = outputs(operator(*[x.clone() for x in inputs]))
    actual = [x.cpu() for x in outputs(operator(*[x.cuda() for x in inputs]))]
    worst = max(error(c, g) for c, g in zip(expected, actual, strict=True))
    print("ok " if worst <= tolerance else "BAD", name.replace(" ", "_"), worst, flush=True)


def gradient(f: Operator) -> Operator:
    def run(*inputs: Tensor) -> object:
        leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
        return torch.autograd.grad(f(*inputs).pow(2).sum(), leaves)  # type: ignore[attr-defined]

    return run


def exact_root(a: Tensor) -> Tensor:
    return a.sqrt() if a.is_cuda else a.double().sqrt().float()


def elementwise() -> None:
    x, y = torch.randn(37, 129), torch.randn(37, 129)
    big = torch.randn(1_000_003)
    check("add bit exact", torch.add, big, big.flip(0), tolerance=0)
    check("mul bit exact", torch.mul, x, y, tolerance=0)
    check("div bit exact", torch.div, x, y, tolerance=0)
    # The vector library of the CPU rounds some roots wrongly; double does not.
    check("sqrt bit exact", exact_root, x.abs(), tolerance=0)
    for name in ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "log1p", "floor", "round", "atan"):
        check(name, getattr(torch, name), x.abs() if name == "log1p" else x)
    check("pow", lambda a, b: a.abs().pow(b), x, y)
    check("where", lambda a, b: torch.where(a > b, a, b), x, y, tolerance=0)
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        a, b = (torch.randint(1, 100, (50, 33)).to(dtype) for _ in range(2))
        check(f"{dtype} arithmetic", lambda a, b: a * b + a - b, a, b)
        check(f"{dtype} floor div", lambda a, b: torch.div(a, b, rounding_mode="floor"), a, b)
        check(f"{dtype} remainder", torch.remainder, a, b)
    for dtype, tolerance in ((torch.half, 2e-3), (torch.bfloat16, 2e-2), (torch.double, 1e-12)):
        a = torch.randn(40, 70).to(dtype)
        check(f"{dtype} gelu", F.gelu, a, tolerance=tolerance)
        check(f"{dtype} softmax", lambda a: F.softmax(a, 1), a, tolerance=tolerance)
        check(f"{dtype} layer norm", lambda a: F.layer_norm(a, (70,)), a, tolerance=tolerance)
        check(f"{dtype} sum", lambda a: a.sum(1), a, tolerance=tolerance)
        check(f"{dtype} cast", lambda a: a.float() * 2, a, tolerance=0)


def reductions() -> None:
    x = torch.randn(37, 129)
    whole = torch.randint(0, 9, (300_000,)).float()
    check("sum", lambda a: a.sum(), whole, tolerance=0)
    check("cumsum", lambda a: a.cumsum(0), whole, tolerance=0)
    check("softmax", lambda a: F.softmax(a, 1), x)
    check("softmax long rows", lambda a: F.softmax(a, 1), torch.randn(3, 3000))
    check("layer norm", lambda a: F.layer_norm(a, (129,)), x)
    check("layer norm vectorized", lambda a: F.layer_norm(a, (256,)), torch.randn(9, 256))
    check("layer norm grad", gradient(lambda a: F.layer_norm(a, (129,)).pow(2)), x, tolerance=1e-4)
    check("var mean", lambda a: torch.var_mean(a, 1), x)
    check("max", lambda a: a.max(1), x, tolerance=0)
    check("argmax", lambda a: a.argmax(), x)
    check("amax amin", lambda a: (a.amax(0), a.amin(1)), x, tolerance=0)
    check("sort", lambda a: a.sort(1), x, tolerance=0)
    check("radix sort", lambda a: a.sort(0), torch.randn(5000), tolerance=0)
    check("topk", lambda a: a.topk(7, 1), x, tolerance=0)
    check("nonzero", lambda a: (a > 1).nonzero(), x)
    check("unique", lambda a: (a * 3).int().unique(return_counts=True), x)
    check("logcumsumexp", lambda a: a.logcumsumexp(1), x)


def indexing() -> None:
    x, index = torch.randn(37, 129), torch.randint(0, 37, (200,))
    check("gather rows", lambda a, i: a[i], x, index, tolerance=0)
    check("index add", lambda a, i: torch.zeros_like(a).index_add(0, i, a[i]), x, index)
    check("embedding grad", gradient(lambda w, i: F.embedding(i, w)), x, index, tolerance=1e-4)
    check(
        "scatter add", lambda a, i: a[:, 0].scatter_add(0, i, torch.ones_like(i).float()), x, index
    )
    check("cat", lambda a: torch.cat([a, a.flip(0)], 1), x, tolerance=0)
    check("transpose copy", lambda a: a.t().contiguous(), x, tolerance=0)
    check("masked select", lambda a: a[a > 0.3], x, tolerance=0)


def networks() -> None:
    image, kernel = torch.randn(2, 3, 16, 16), torch.randn(5, 3, 3, 3)
    conv = gradient(lambda a, w: F.conv2d(a, w, padding=1, stride=2))
    check("conv2d grad", conv, image, kernel, tolerance=1e-4)
    check("max pool", lambda a: F.max_pool2d(a, 2), image, tolerance=0)
    check("max pool grad", gradient(lambda a: F.max_pool2d(a, 3, 2)), image)
    check("group norm", lambda a: F.group_norm(a, 3), image)
    logits, labels = torch.randn(37, 129), torch.randint(0, 129, (37,))
    check("cross entropy grad", gradient(F.cross_entropy), logits, labels)
    check("bilinear", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), image)
    query = torch.randn(2, 4, 50, 32)

    def attention(q: Tensor) -> Tensor:
        if not q.is_cuda:
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    check("attention", attention, query)
    check("attention grad", gradient(attention), query, tolerance=1e-4)
    check(
        "attention half (tensor cores)",
        lambda q: attention(q.half()).float(),
        query,
        tolerance=4e-3,
    )


def main() -> None:
    torch.manual_seed(0)
    elementwise()
    reductions()
    indexing()
    networks()
    print("done")


if __name__ == "__main__":
    main()
