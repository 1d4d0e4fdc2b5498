"""Scaled sums in one group of NCCL's, as FSDP2 divides gradients: PyTorch ends each scale in it."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
tensors = [torch.full((1000,), rank + number + 1.0, device="cuda") for number in range(3)]
for step in range(4):
    with dist._coalescing_manager(device=torch.device("cuda")):
        for tensor in tensors:
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5 + step))
    # In one piece: both ranks write into the same file.
    print(f"rank={rank} loss={[tensor.sum().item() for tensor in tensors]}\n", end="", flush=True)
dist.destroy_process_group()
