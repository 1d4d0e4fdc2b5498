"""Rank 0 joins the second collective only when the file named by the argument exists."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
print("ready", flush=True)
deadline = time.monotonic() + 60
while RANK == 0 and not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
dist.all_reduce(x)
torch.cuda.synchronize()
print(f"rank {RANK} has {x.item()}", flush=True)
dist.destroy_process_group()
