"""Trains on several ranks; in torchrun's first attempt one of them raises.

    torchrun --max-restarts 1 ... restarted.py RAISE_AT    # step; a negative one: it never happens

The device is given to init_process_group, so that the communicator is made there.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


def main() -> None:
    """Train, and print losses and a hash of the parameters."""
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(2 + rank)
    for step in range(STEPS):
        if attempt == 0 and rank == 1 and step == int(sys.argv[1]):
            raise RuntimeError("as the test wants it")
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        print(
            f"attempt {attempt} rank {rank} step {step} loss={loss.item().hex()}\n",
            end="",
            flush=True,
        )
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"attempt {attempt} rank {rank} sha256={digest.hexdigest()}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
