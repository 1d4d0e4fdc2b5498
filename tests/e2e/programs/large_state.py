"""Steps of an optimizer beside much state, all of which changes in each (`large_state.py MB STEPS`)."""

from __future__ import annotations

import sys

import torch

megabytes, steps = int(sys.argv[1]), int(sys.argv[2])
weight = torch.nn.Parameter(torch.zeros(1, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=1.0)
parts = [torch.zeros(1 << 20, device="cuda") for _ in range(megabytes // 4)]
for step in range(steps):
    for number, part in enumerate(parts):
        part.add_(number + 1)
    weight.grad = parts[-1][:1].clone()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step={step} weight={weight.item():g}", flush=True)
print(f"sum={sum(part.double().sum().item() for part in parts):g}")
