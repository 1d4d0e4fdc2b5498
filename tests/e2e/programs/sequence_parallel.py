"""Tensor and sequence parallelism by hand, one training per --case (see recovery_cases.py).

Each rank has its part of two matrices, whose gradients are its own. All have the third matrix, each
for its own rows: its gradient is summed, and is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from recovery_cases import RANK, WORLD, Step, main
from torch import Tensor, nn

ROWS, WIDTH, INNER = 256, 8, 64  # activations are all larger than the three matrices, but for sums
MOVED = 3  # in this step the gradients get other places


def gathered(part: Tensor) -> Tensor:
    """Return the rows of all ranks."""
    whole = part.new_empty(WORLD * len(part), part.shape[1])
    dist.all_gather_into_tensor(whole, part.contiguous())
    return whole


def summed(whole: Tensor) -> Tensor:
    """Return this rank's rows of the sum over the ranks."""
    part = whole.new_empty(len(whole) // WORLD, whole.shape[1])
    dist.reduce_scatter_tensor(part, whole.contiguous())
    return part


class Gather(torch.autograd.Function):
    """From rows of its own to all rows."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return gathered(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return summed(gradient)


class Scatter(torch.autograd.Function):
    """From what each has of all rows to the sum, of its own rows."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor) -> Tensor:
        return summed(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gathered(gradient)


class Block(nn.Module):
    """What a rank has of it."""

    def __init__(self) -> None:
        super().__init__()
        into, out = torch.randn(WORLD, WIDTH, INNER), torch.randn(WORLD, INNER, WIDTH)
        self.head = nn.Parameter(0.1 * torch.randn(WIDTH, INNER))
        self.between: list[Tensor] = []
        self.into, self.out = nn.Parameter(0.1 * into[RANK]), nn.Parameter(0.1 * out[RANK])

    def forward(self, part: Tensor) -> Tensor:
        hidden = (Gather.apply(part) @ self.into).relu()
        return (part + Scatter.apply(hidden @ self.out)) @ self.head


def rows(number: int) -> Tensor:
    """Return this rank's rows of a batch that all have."""
    whole = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(number))
    return whole.chunk(WORLD)[RANK].cuda()


def holes(count: int, *shape: int) -> list[Tensor]:
    """Return what lies between so many free blocks, which the allocator prefers, the first first."""
    pairs = [
        (torch.empty(shape, device="cuda"), torch.empty(1, device="cuda")) for _ in range(count)
    ]
    return [between for _, between in pairs]


def sequence(models: list[nn.Module]) -> Step:
    """What is freed after two steps lets each gradient take the place of another one."""
    model = Block().cuda()
    models.append(model)
    first = [torch.ones(WIDTH, INNER, device="cuda")]
    model.between = holes(32) + holes(3, WIDTH, INNER)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    places: dict[str, int] = {}

    def step(number: int) -> Tensor:
        if number == MOVED:
            first.clear()
        loss = model(rows(number)).square().mean()
        loss.backward()
        dist.all_reduce(model.head.grad)
        before = places.get("head")
        places.update({name: one.grad.data_ptr() for name, one in model.named_parameters()})
        assert (before in (places["into"], places["out"])) == (number == MOVED), places
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        return total

    return step


CASES: dict[str, Callable[[list[nn.Module]], Step]] = {case.__name__: case for case in (sequence,)}

if __name__ == "__main__":
    main(CASES)
