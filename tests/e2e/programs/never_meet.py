"""Each of two ranks waits for what the other one never sends."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
dist.recv(x, src=1 - RANK)
torch.cuda.synchronize()
print(f"rank {RANK} has {x.item()}\n", end="", flush=True)
