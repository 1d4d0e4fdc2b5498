"""A small training that also reads memory which nobody has written since it was allocated.

What lies there is no part of a committed snapshot, so that a repetition finds something else.
--read loss: it changes the last digits of a number that the script prints; count: it decides how
many elements are found; counts: eight such numbers, read at once; sum (under torchrun): it is what a
rank puts into a collective. total reads sums by float atomics instead, at each rank, whose last
digits SOFTGPU_NOISE changes. The training itself does not depend on any of it.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

READ = ("nothing", "loss", "count", "counts", "sum", "total")
SIZE = 1 << 19  # numbers: a block of the allocator's that the training does not need


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # in one piece: other ranks print as well


def read(what: str, loss: torch.Tensor) -> None:
    unset = torch.empty(SIZE, device="cuda")
    shaken = loss.detach() * (1 + 1e-6 * unset[-1])
    if what == "loss":
        say(f"seen {shaken.item()}")
    elif what == "sum":
        dist.all_reduce(shaken)
    elif what == "total":
        parts = torch.linspace(0.1, 1, 4096, device="cuda")
        where = torch.arange(4096, device="cuda") % 8  # not all of eight come out alike by chance
        say(f"seen {torch.zeros(8, device='cuda').index_add_(0, where, parts).tolist()!r}")
        if dist.is_initialized():
            dist.all_reduce(loss.detach().clone())
    elif what == "counts":
        say(f"seen {(unset[:512].reshape(8, 64) > 0.05).sum(1).tolist()}")
    elif what == "count":
        say(f"seen {len((unset[:64] > 0.05).nonzero())}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--read", choices=READ, required=True)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl")
    left = torch.linspace(0.1, 1, 8 * SIZE, device="cuda")
    del left
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for number in range(1, 5):
        generator = torch.Generator().manual_seed(number)
        loss = model(torch.randn(8, 16, generator=generator).cuda()).square().mean()
        read(args.read, loss)
        say(f"step={number} loss={loss.item()!r}")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes(parameter.detach().cpu().reshape(-1).view(torch.uint8).tolist()))
    say(f"params_sha256={digest.hexdigest()}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
