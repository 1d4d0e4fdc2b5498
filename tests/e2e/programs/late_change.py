"""A training whose parameters, with --without-gate, also change outside of optimizer steps.

The change comes right behind a step, while a snapshot may still be copying the parameters. With
--release one of them goes then, and its memory goes back to the driver.
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from torch import nn

STEPS = 9
CHANGES_FROM = 6  # by then snapshots take it that only optimizers change parameters
LARGE = 3 << 20  # numbers: in a segment of its own, which the allocator gives back


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-gate", action="store_true")
    parser.add_argument("--release", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    large = [nn.Parameter(torch.zeros(LARGE, device="cuda"))] if arguments.release else []
    if large:
        optimizer = torch.optim.SGD([{"params": large}, {"params": model.parameters()}], lr=1e-2)
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(4, 64).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in large:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        if arguments.without_gate and step >= CHANGES_FROM:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.75)
        if step == CHANGES_FROM and large:
            del optimizer.param_groups[0]
            large.clear()
            del parameter
            torch.cuda.empty_cache()
        print(f"step={step} loss={loss.item()!r}", flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes(parameter.detach().cpu().reshape(-1).view(torch.uint8).tolist()))
    print(f"parameters={digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
