"""Collectives of two ranks under torch.profiler: each prints the rows of its device's collectives."""

from __future__ import annotations

import os
from collections import Counter

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    """Entry point."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    tensor = torch.full((1000,), float(rank + 1), device="cuda")
    dist.all_reduce(tensor)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        dist.all_reduce(tensor)
        gathered = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(gathered, tensor)
        dist.all_reduce(tensor * 2)
    work = [event for event in profiler.events() if event.name == "nccl"]
    print(f"rank {rank} sum {tensor.sum().item()}")
    print(f"rank {rank} rows {len(work)} on {dict(Counter(e.device_index for e in work))}")
    print(f"rank {rank} in time {all(e.time_range.elapsed_us() > 0 for e in work)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
