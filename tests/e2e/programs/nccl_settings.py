"""Two ranks whose communicators have settings of their own: one made by itself, one divided from it."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
options = dist.ProcessGroupNCCL.Options()
options.config.max_ctas = 6
options.config.net_name = "Socket"
options.config.blocking = 1
dist.init_process_group("nccl", pg_options=options, device_id=device)
options = dist.ProcessGroupNCCL.Options()
options.config.max_ctas = 3
part = dist.new_group([0, 1], pg_options=options)

weight = torch.nn.Parameter(torch.full((8,), 1.0 + rank, device=device))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    weight.grad = weight.detach() * 0.5
    dist.all_reduce(weight.grad)
    dist.all_reduce(weight.grad, group=part)
    optimizer.step()
print(f"rank {rank} loss={weight.sum().item().hex()}\n", end="", flush=True)
dist.destroy_process_group()
