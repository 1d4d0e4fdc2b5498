"""A growing, shrinking, reused pool of memory: prints what may not depend on who maps the memory.

The caller turns PyTorch's expandable segments on or off.
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn

MIB = 1 << 20


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:16]


def train() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = (model(torch.randn(32, 64, device="cuda")) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("loss", loss.item().hex(), digest(model[0].weight))


def grow_and_shrink() -> None:
    """Blocks larger than a segment's pieces span several mappings."""
    blocks = [torch.full((30 * MIB + k,), k, dtype=torch.uint8, device="cuda") for k in range(4)]
    whole = torch.cat([block[: 21 * MIB] for block in blocks])
    print("spans", digest(whole), int(whole.sum(dtype=torch.int64)))
    print("middle", blocks[2][19 * MIB : 23 * MIB].cpu().unique().tolist())
    del blocks
    torch.cuda.empty_cache()
    print("kept", digest(whole))
    pinned = torch.empty(whole.shape, dtype=torch.uint8, pin_memory=True)
    pinned.copy_(whole, non_blocking=True)
    torch.cuda.synchronize()
    print("pinned", digest(pinned))


def out_of_memory() -> None:
    try:
        torch.empty(40 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("after", torch.ones(4, device="cuda").sum().item())


def main() -> None:
    train()
    grow_and_shrink()
    out_of_memory()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    print("freed", total - free < 64 * MIB)
    segments = torch.cuda.memory_snapshot()
    print("expandable", {segment["is_expandable"] for segment in segments})


main()
