"""Rank 1 comes to a collective late, or never: whose deadline ends the job, and when?

python stuck_rank.py LIMIT_S SLEEP_S     # of process groups; of rank 1 before the second all-reduce
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    """Reduce twice and print the sum."""
    limit, sleep = float(sys.argv[1]), float(sys.argv[2])
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", timeout=timedelta(seconds=limit))
    x = torch.arange(4, device="cuda", dtype=torch.float32) + rank
    dist.all_reduce(x)
    torch.cuda.synchronize()
    print(f"rank {rank} has reduced once\n", end="", flush=True)
    if rank == 1:
        time.sleep(sleep)
    started = time.monotonic()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    print(f"rank {rank} sum={x.tolist()}\n", end="", flush=True)
    print(f"rank {rank} waited {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
