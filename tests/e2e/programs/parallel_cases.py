"""Small trainings that several ranks share in different ways, one per --case (see recovery_cases.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from recovery_cases import RANK, WORLD, Step, data, main, mlp, plain_loss
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


def dp_tp(models: list[nn.Module]) -> Step:
    """Copies of a model each of which two ranks share, layer by layer."""
    mesh = init_device_mesh("cuda", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    model = mlp(32)
    models.append(model)
    plan = {"0": ColwiseParallel(), "3": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    copies = mesh.get_group("dp")
    copy = mesh.get_local_rank("dp")

    def step(number: int) -> Tensor:
        # Both halves of a model see the same rows.
        generator = torch.Generator().manual_seed(1000 * number + copy)
        loss = model(torch.randn(8, 16, generator=generator).cuda()).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.to_local(), op=dist.ReduceOp.AVG, group=copies)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def fsdp(models: list[nn.Module]) -> Step:
    """Each rank has a share of each parameter."""
    model = mlp(32, dropout=0.1)
    models.append(model)
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        loss = plain_loss(model, number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def dp_pp(models: list[nn.Module], overflows: bool = True) -> Step:
    """Two pipelines of two stages, whose stages are copies; the last stage has a scaler of its own.

    The gradients of the last stage overflow in the second step, so that only it leaves that out.
    """
    first = RANK % 2 == 0
    stage = nn.Linear(16, 32) if first else nn.Sequential(nn.Tanh(), nn.Linear(32, 4))
    models.append(stage.cuda())
    groups = [dist.new_group(list(range(side, WORLD, 2))) for side in (0, 1)]
    module = DistributedDataParallel(stage, process_group=groups[RANK % 2])
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-2, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0, enabled=not first)

    def step(number: int) -> Tensor:
        total = torch.zeros((), device="cuda")
        for part in range(2):
            if first:
                sent = module(data(10 * number + part).cuda())
                dist.send(sent.detach(), RANK + 1)
                back = torch.empty_like(sent)
                dist.recv(back, RANK + 1)
                sent.backward(back)
            else:
                got = torch.empty(8, 32, device="cuda")
                dist.recv(got, RANK - 1)
                loss = module(got.requires_grad_()).square().mean()
                scaler.scale(loss * 1.0).backward()
                dist.send(got.grad / scaler.get_scale(), RANK - 1)
                total += loss.detach()
        if overflows and number == 2 and not first:
            stage[1].bias.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return total

    return step


def uneven(models: list[nn.Module]) -> Step:
    """Each rank has another number of batches: who has none left answers the others."""
    model = mlp()
    models.append(model)
    module = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        total = torch.zeros((), device="cuda")
        with Join([module]):
            for part in range(1 + RANK):
                loss = plain_loss(module, 10 * number + part)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                total += loss.detach()
        return total

    return step


def ahead(models: list[nn.Module]) -> Step:
    """A receive that is posted before a step and comes true after it; only rank 0 has an optimizer."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2) if RANK == 0 else None
    beside = dist.new_group(list(range(WORLD)))
    other = RANK ^ 1
    for group in (None, beside):  # a pair's communicator is made by both in the first exchange
        if RANK == 0:
            dist.send(torch.ones(1, device="cuda"), 1, group=group)
        elif RANK == 1:
            dist.recv(torch.ones(1, device="cuda"), 0, group=group)

    def step(number: int) -> Tensor:
        late = torch.empty(16, device="cuda")
        coming = dist.irecv(late, other, group=beside) if RANK == 0 else None
        loss = plain_loss(model, number)
        loss.backward()
        if optimizer:
            optimizer.step()
        message = loss.detach().repeat(16)
        if RANK == 0:
            dist.send(message, other)
            coming.wait()
        elif RANK == 1:
            dist.recv(late, other)
            dist.send(late + message, other, group=beside)
        model.zero_grad()
        return loss.detach() + late.sum() if RANK < 2 else loss.detach()

    return step


class Exchange(torch.autograd.Function):
    """Rows go to other ranks, so many to each; their gradients come back."""

    @staticmethod
    def forward(  # noqa: D102
        context: Any, rows: Tensor, sent: list[int], received: list[int]
    ) -> Tensor:
        context.sizes = (sent, received)
        return exchange(rows, sent, received)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        sent, received = context.sizes
        return exchange(gradient, received, sent), None, None


def exchange(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    got = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(got, rows.contiguous(), received, sent)
    return got


def moe(models: list[nn.Module]) -> Step:
    """A mixture of experts, one at each rank: counts that are read say how many tokens go where.

    The load of each expert is a sum by float atomics, and each rank reads the norm of its gradients.
    """
    embedding, router, expert = nn.Embedding(64, 16).cuda(), nn.Linear(16, WORLD).cuda(), mlp()
    model = nn.ModuleList([embedding, router, expert])
    models.append(model)
    for parameter in (*embedding.parameters(), *router.parameters()):
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * number + RANK)
        rows = embedding(torch.randint(0, 64, (96,), generator=generator).cuda())
        weights, choice = router(rows).softmax(-1).max(-1)
        counts = torch.bincount(choice, minlength=WORLD)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = counts.tolist(), theirs.tolist()
        order = choice.argsort(stable=True)
        there = expert(Exchange.apply(rows[order], sent, received))
        back = Exchange.apply(there, received, sent) * weights[order].unsqueeze(1)
        load = torch.zeros(WORLD, device="cuda").index_add(0, choice, weights)
        loss = back.square().mean() + 1e-3 * load.square().mean()
        loss.backward()
        for parameter in (*embedding.parameters(), *router.parameters()):
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        if not math.isfinite(norm):
            raise ValueError(f"the norm of the gradients is {norm}")
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


CASES: dict[str, Callable[[list[nn.Module]], Step]] = {
    case.__name__: case for case in (dp_tp, fsdp, dp_pp, uneven, ahead, moe)
}

if __name__ == "__main__":
    main(CASES)
