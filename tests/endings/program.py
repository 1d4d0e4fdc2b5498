"""Two ranks that add up numbers; one of them, or none, ends as the words say.

    torchrun --nproc-per-node 2 program.py WAY RANK FOLDER

The moment is written to FOLDER/event. Everything else is PyTorch's default.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from ways import WRONG_SUM

WAY, WHO, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
STEPS_BEFORE = 3
PROGRAM_DEADLINE_S = 8
LONG_S = 600
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}


def tell() -> None:
    """Say when it is."""
    part = FOLDER / "event.part"
    part.write_text(repr(time.time()))
    part.replace(FOLDER / "event")


def end() -> None:
    """Do what the word says."""
    if WAY == "raise":
        raise RuntimeError("an error of the program")
    if WAY == "exit-0":
        sys.exit(0)
    if WAY == "late":
        time.sleep(LONG_S)
    if WAY == "assert":
        table, place = torch.zeros(4, device="cuda"), torch.tensor([9], device="cuda")
        print(table[place].sum().item())
    if WAY == "memory":
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    if WAY == "segv":
        ctypes.string_at(0)
    if WAY in SIGNALS:
        os.kill(os.getpid(), SIGNALS[WAY])
        time.sleep(LONG_S)


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    deadline = PROGRAM_DEADLINE_S if WAY == "late" else LONG_S
    dist.init_process_group("nccl", timeout=timedelta(seconds=deadline))
    for step in range(LONG_S * 10):
        if step == STEPS_BEFORE and rank == max(WHO, 0):
            tell()
            if rank == WHO:
                end()
        total = torch.ones(1000, device="cuda")
        dist.all_reduce(total)
        if (value := total[0].item()) != dist.get_world_size():
            print(f"rank {rank} {WRONG_SUM} {value}", file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
