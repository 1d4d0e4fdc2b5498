"""Train, and stand still after some steps until the test says so.

Arguments: a folder, where `standing-RANK` says that the rank has come there and `go` lets it go on;
and what happens before that: `sort` (rank 1 alone uses kernels of one more module), `fill` (memory
is used until there is none, between `filling` and `fill`), `wide` (1 MB of parameters and states).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def say(line: str) -> None:
    """Print in one piece: two ranks write to one file."""
    print(f"{line}\n", end="", flush=True)


def fill() -> None:
    """Print how much fits, and how long it takes to learn that no more does."""
    held = []
    began = time.monotonic()
    try:
        while True:
            began = time.monotonic()
            held.append(torch.ones(32 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(f"full after={len(held)} seconds={time.monotonic() - began:.3f}", flush=True)
    held.clear()
    torch.cuda.empty_cache()


def quiesce(folder: Path, here: str, until: str) -> None:
    (folder / here).touch()
    while not (folder / until).exists():
        time.sleep(0.02)


def main(folder: Path, *extras: str) -> None:
    torch.manual_seed(1)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if WORLD > 1:
        dist.init_process_group("nccl")
    width = 4096 if "wide" in extras else 32
    model = nn.Sequential(
        nn.Linear(16, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 4)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(8):
        loss = model(torch.randn(8, 16).cuda()).square().mean()
        if WORLD > 1:
            dist.all_reduce(loss.detach())
        if "sort" in extras and RANK == 1:
            torch.sort(torch.randn(5000).cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"step={step} rank={RANK} loss={loss.item():.9e}")
        if step == 4:
            if "fill" in extras:
                quiesce(folder, "filling", "fill")
                fill()
            quiesce(folder, f"standing-{RANK}", "go")
    flat = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
    say(f"rank={RANK} sha256={hashlib.sha256(flat.numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
