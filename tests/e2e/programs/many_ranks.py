"""Every collective over several ranks against what it must give, then DistributedDataParallel.

Each rank prints `<rank> loss <hex>` and `<rank> hash <hash of all parameters>`.
"""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def of_rank(rank: int, count: int = 12) -> torch.Tensor:
    """What rank `rank` contributes: exact in float32 under any order of additions."""
    return torch.arange(float(count), device=DEVICE) + 100 * rank


def reductions() -> None:
    everybody = torch.stack([of_rank(r) for r in range(SIZE)])
    expected = {
        dist.ReduceOp.SUM: everybody.sum(0),
        dist.ReduceOp.AVG: everybody.mean(0),
        dist.ReduceOp.MAX: everybody.amax(0),
        dist.ReduceOp.MIN: everybody.amin(0),
    }
    for operation, result in expected.items():
        mine = of_rank(RANK)
        dist.all_reduce(mine, op=operation)
        torch.testing.assert_close(mine, result)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8):
        mine = torch.full((5,), RANK + 1, device=DEVICE, dtype=dtype)
        dist.all_reduce(mine)
        assert mine.tolist() == [SIZE * (SIZE + 1) / 2] * 5, dtype
    part = torch.empty(12, device=DEVICE)
    dist.reduce_scatter_tensor(part, torch.cat([of_rank(RANK) + c for c in range(SIZE)]))
    assert part.equal(everybody.sum(0) + SIZE * RANK)
    mine = of_rank(RANK)
    dist.reduce(mine, SIZE - 1)
    assert RANK != SIZE - 1 or mine.equal(everybody.sum(0))
    half = of_rank(RANK)
    scaled = dist._make_nccl_premul_sum(0.5)  # NCCL's ncclRedOpCreatePreMulSum
    dist.all_reduce(half, op=scaled)
    assert half.equal(everybody.sum(0) / 2)


def movements() -> None:
    gathered = torch.empty(12 * SIZE, device=DEVICE)
    dist.all_gather_into_tensor(gathered, of_rank(RANK))
    assert gathered.equal(torch.cat([of_rank(r) for r in range(SIZE)]))
    uneven = [torch.empty(r + 1, device=DEVICE) for r in range(SIZE)]
    dist.all_gather(uneven, of_rank(RANK, RANK + 1))
    assert all(t.equal(of_rank(r, r + 1)) for r, t in enumerate(uneven))
    root = of_rank(RANK)
    dist.broadcast(root, 1)
    assert root.equal(of_rank(1))
    swapped = torch.empty(SIZE, device=DEVICE)
    dist.all_to_all_single(swapped, torch.arange(float(SIZE), device=DEVICE) + 10 * RANK)
    assert swapped.tolist() == [10 * r + RANK for r in range(SIZE)]
    parts = [torch.empty(3, device=DEVICE) for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(of_rank(RANK, 3), parts, 0)
    assert parts is None or all(p.equal(of_rank(r, 3)) for r, p in enumerate(parts))
    mine = torch.empty(3, device=DEVICE)
    dist.scatter(mine, [of_rank(r, 3) for r in range(SIZE)] if RANK == 0 else None, 0)
    assert mine.equal(of_rank(RANK, 3))
    received = torch.empty(12, device=DEVICE)
    ring = [
        dist.P2POp(dist.isend, of_rank(RANK), (RANK + 1) % SIZE),
        dist.P2POp(dist.irecv, received, (RANK - 1) % SIZE),
    ]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    assert received.equal(of_rank((RANK - 1) % SIZE))
    objects: list[object] = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": r} for r in range(SIZE)]
    dist.barrier(device_ids=[DEVICE.index])


def groups() -> None:
    """Communicators of some ranks, used at once on streams of their own."""
    pairs = [dist.new_group([r, (r + 1) % SIZE]) for r in range(SIZE if SIZE > 2 else 1)]
    works, tensors = [], []
    for first, pair in enumerate(pairs):
        if RANK in (first, (first + 1) % SIZE):
            tensors.append(of_rank(RANK))
            works.append(dist.all_reduce(tensors[-1], group=pair, async_op=True))
    for work in works:
        work.wait()
    sums = [of_rank(f) + of_rank((f + 1) % SIZE) for f in range(len(pairs))]
    mine = [s for f, s in enumerate(sums) if RANK in (f, (f + 1) % SIZE)]
    assert all(t.equal(s) for t, s in zip(tensors, mine, strict=True))


def train() -> None:
    torch.manual_seed(RANK)  # DDP broadcasts rank 0's parameters
    body = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 8))
    model = DistributedDataParallel(body.to(DEVICE), device_ids=[DEVICE.index], bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        x = torch.randn(16, 32, device=DEVICE)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{RANK} loss {loss.item().hex()}\n", end="", flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"{RANK} hash {digest.hexdigest()[:16]}\n", end="", flush=True)


torch.cuda.set_device(DEVICE)
dist.init_process_group("nccl")
reductions()
movements()
groups()
train()
dist.destroy_process_group()
