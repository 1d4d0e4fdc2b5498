"""Trains in processes that torch.multiprocessing starts: RANK is in nobody's environment.

python spawned.py RENDEZVOUS_FILE [plain]    # rank r has the device of the other one; plain: its own
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS = 2, 4


def work(rank: int, file: str, plain: bool) -> None:
    """Train one rank, and print losses and a hash of the parameters."""
    assert "RANK" not in os.environ
    torch.cuda.set_device(rank if plain else RANKS - 1 - rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(2 + rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss={loss.item().hex()}\n", end="", flush=True)
        if step >= 2:  # the agent sees a place late, on a busy machine by more than a step
            time.sleep(0.3)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"rank {rank} sha256={digest.hexdigest()}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1], "plain" in sys.argv), nprocs=RANKS)
