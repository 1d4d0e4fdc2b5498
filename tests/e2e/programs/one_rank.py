"""Training on one rank with DistributedDataParallel, and every collective. Argument: `ddp`, `left` (the
process group is left to the end of the process) or `plain`.

All print the same losses and hash: with one rank, DDP changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DDP = sys.argv[1] != "plain"


def collectives() -> None:
    """Each collective gives back what went in."""
    given = torch.arange(12.0, device="cuda")
    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        reduced = given.clone()
        dist.all_reduce(reduced, op=operation)
        assert reduced.equal(given)
    results = [torch.zeros_like(given) for _ in range(6)]
    dist.all_gather_into_tensor(results[0], given)
    dist.reduce_scatter_tensor(results[1], given)
    dist.all_to_all_single(results[2], given)
    dist.all_gather([results[3]], given)
    dist.all_to_all([results[4]], [given])
    dist.gather(given, [results[5]])
    assert all(result.equal(given) for result in results)
    sent, received = given * 2, torch.zeros_like(given)
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
    )
    for one in work:
        one.wait()
    assert received.equal(sent)
    dist.broadcast(given, 0)
    dist.reduce(given, 0)
    dist.barrier()
    objects: list[object] = [None]
    dist.all_gather_object(objects, {"rank": 0})
    assert objects == [{"rank": 0}]
    half = dist.new_group([0])
    dist.all_reduce(given, group=half)
    assert given.equal(torch.arange(12.0, device="cuda"))


torch.manual_seed(0)
torch.cuda.set_device(0)
model: nn.Module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda()
if DDP:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl")
    collectives()
    torch.manual_seed(1)
    model = DistributedDataParallel(model, device_ids=[0])
torch.manual_seed(1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(5):
    x = torch.randn(16, 32, device="cuda")
    loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item().hex())
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
print("hash", digest.hexdigest()[:16])
if sys.argv[1] == "ddp":
    dist.destroy_process_group()
