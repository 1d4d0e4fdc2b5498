"""Lets a kernel write to page-locked memory, or with "device" to the device's: FATBIN pinned|device."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from module_counter import Counter


def main() -> None:
    torch.zeros(1, device="cuda")
    other = torch.zeros(1, dtype=torch.int64, pin_memory=True)  # somebody has such memory
    out = other if sys.argv[2] == "pinned" else torch.zeros(1, dtype=torch.int64, device="cuda")
    Counter(Path(sys.argv[1]).read_bytes()).count(out)
    torch.cuda.synchronize()
    assert out.item() == 8


if __name__ == "__main__":
    main()
