"""Small trainings that give much to the host, one per --case (see recovery_cases.py)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable

import torch
import torch.distributed as dist
from recovery_cases import RANK, WORLD, Step, main, mlp, plain_loss, spread_out
from torch import Tensor, nn


def save(models: list[nn.Module]) -> Step:
    """After each step the whole state is saved, in copies that take a while."""
    model = nn.Sequential(mlp(), nn.Linear(1024, 4096).cuda())
    models.append(model[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        loss = plain_loss(model[0], number) + model[1].weight.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        digest = hashlib.sha256()
        for name, tensor in torch.load(file, map_location="cpu")["model"].items():
            digest.update(name.encode() + bytes(tensor.reshape(-1).view(torch.uint8).numpy()))
        print(f"step={number} sha256={digest.hexdigest()}\n", end="", flush=True)
        return loss.detach()

    return step


def timers(models: list[nn.Module]) -> Step:
    """Events that measure steps: each time is a number, whichever server recorded its events."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    marks: list[torch.cuda.Event] = []

    def step(number: int) -> Tensor:
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        loss = plain_loss(model, number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        marks[-1].synchronize()
        times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False)]
        print(f"step={number} loss=times:{all(t == t for t in times)}\n", end="", flush=True)
        return loss.detach()

    return step


def evaluation(models: list[nn.Module]) -> Step:
    """Hundreds of batches without an optimizer: only a log that is full makes cuts."""
    net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)).cuda()
    models.append(net)

    def step(number: int) -> Tensor:
        total = torch.zeros((), device="cuda")
        with torch.no_grad():
            for part in range(100):
                total += plain_loss(net, 100 * number + part)
        return total

    return step


def lone_evaluation(models: list[nn.Module]) -> Step:
    """Replicas that train together; behind each step the first one evaluates, the others wait."""
    model = mlp(256)
    models.append(model)
    module, optimizer = spread_out(model), torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        loss = plain_loss(module, number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        with torch.no_grad():
            for part in range(0 if RANK else 150):
                total += plain_loss(model, 1000 * number + part)
        if WORLD > 1:
            dist.all_reduce(total)
        return total

    return step


CASES: dict[str, Callable[[list[nn.Module]], Step]] = {
    case.__name__: case for case in (save, timers, evaluation, lone_evaluation)
}

if __name__ == "__main__":
    main(CASES)
