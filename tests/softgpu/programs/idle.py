"""Prints how many MB of memory the devices cost beyond PyTorch itself."""

from __future__ import annotations

import sys
from pathlib import Path

import torch


def resident_mb() -> float:
    """Return this process's resident memory."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("smaps_rollup has no Rss line")


before = resident_mb()
for device in range(int(sys.argv[1])):
    torch.zeros(1, device=f"cuda:{device}")
    torch.cuda.synchronize(device)
print(resident_mb() - before)
