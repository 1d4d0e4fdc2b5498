"""Use the GPU, say `ready`, and sleep until stdin ends."""

from __future__ import annotations

import ctypes
import sys

import torch

x = torch.ones(8, device="cuda")
torch.cuda.synchronize()
if "unsupported" in sys.argv:
    print("code", ctypes.CDLL(None).cuLinkCreate_v2(), flush=True)
print("ready", flush=True)
sys.stdin.read()
print("sum", x.sum().item())
