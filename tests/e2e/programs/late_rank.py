"""Rank 0 joins the second collective only when the file named by the argument exists.

With "receive" it has one open meanwhile, for which the other rank has nothing before that.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
RECEIVES = sys.argv[2:] == ["receive"]
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x, y = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
dist.all_reduce(x)
if RECEIVES:  # makes the communicator of the pair
    dist.recv(y, src=1) if RANK == 0 else dist.send(y, dst=0)
torch.cuda.synchronize()
receiving = dist.irecv(y, src=1) if RECEIVES and RANK == 0 else None
print("ready\n", end="", flush=True)
deadline = time.monotonic() + 60
while RANK == 0 and not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
dist.all_reduce(x)
if RECEIVES and RANK == 1:
    torch.cuda.synchronize()
    dist.send(x, dst=0)
if receiving:
    receiving.wait()
torch.cuda.synchronize()
print(f"rank {RANK} has {x.item()}\n", end="", flush=True)
dist.destroy_process_group()
