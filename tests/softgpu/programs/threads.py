"""One line per computation with the hash of its bits. Each runs often enough, and large enough, for
its kernels to be given to several threads; together they hold what makes that difficult: blocks
that store to the same place, add to the same place, wait for each other, or share a line of memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS = 3  # the first launch of a kernel always has one thread


def bits(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(
            bytes(tensor.detach().contiguous().cpu().view(torch.uint8).flatten().tolist())
        )
    return digest.hexdigest()[:16]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, device="cuda")


def indexes(high: int, count: int) -> Tensor:
    return torch.randint(high, (count,), generator=GENERATOR, device="cuda")


def index_put() -> Tensor:
    target = torch.zeros(301, device="cuda")
    target[indexes(301, 50_000)] = random(50_000)
    return target


def scatter() -> Tensor:
    return torch.zeros(97, device="cuda").scatter_(0, indexes(97, 40_000), random(40_000))


def scatter_add() -> Tensor:
    return torch.zeros(997, device="cuda").scatter_add_(0, indexes(997, 40_000), random(40_000))


def index_add() -> Tensor:
    return torch.zeros(50, 64, device="cuda").index_add_(0, indexes(50, 800), random(800, 64))


def embedding_backward() -> Tensor:
    weight = random(40, 64).requires_grad_()
    F.embedding(indexes(40, 1000), weight).square().sum().backward()
    assert weight.grad is not None
    return weight.grad


def scans() -> Tensor:
    x = random(100_003)
    return torch.cat([x.cumsum(0), x.double().cumsum(0).float()])


def sort() -> Tensor:
    values, order = random(30_011).sort()
    return torch.cat([values, order.float()])


def unique() -> Tensor:
    values, counts = indexes(500, 20_000).unique(return_counts=True)
    return torch.cat([values, counts])


def histogram() -> Tensor:
    return torch.cat([indexes(60, 60_000).bincount(), random(60_000).histc(31).long()])


def odd_reduction() -> Tensor:
    return torch.cat([random(1237, 75).sum(1), random(1237, 75).softmax(1).amax(1)])


def odd_transpose() -> Tensor:
    return random(331, 257).t().contiguous()


def bytes_beside_each_other() -> Tensor:
    return (random(70_001) > 0).logical_not()


def in_place() -> Tensor:
    x = random(70_001)
    return x.mul_(1.5).add_(x).clamp_(-2, 2)


def training_step() -> Tensor:
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.2, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(random(4, 64, 64)).square().mean().backward()
    optimizer.step()
    return torch.cat([p.detach().flatten() for p in layer.parameters()])


PROGRAMS: list[Callable[[], Tensor]] = [
    index_put,
    scatter,
    scatter_add,
    index_add,
    embedding_backward,
    scans,
    sort,
    unique,
    histogram,
    odd_reduction,
    odd_transpose,
    bytes_beside_each_other,
    in_place,
    training_step,
]

GENERATOR = torch.Generator("cuda")

if __name__ == "__main__":
    for program in PROGRAMS:
        GENERATOR.manual_seed(1)
        print(program.__name__, bits(*[program() for _ in range(ROUNDS)]))
