"""Runs inside `pyft run`: trains a small MLP for many steps, with what training scripts do beside."""

from __future__ import annotations

import argparse

import torch
from torch import nn

FEATURES, CLASSES, BATCH = 16, 4, 8
REPORT_STEPS = 50
EVALUATION_STEPS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    side = torch.cuda.Stream()
    loss = torch.zeros(())
    for step in range(1, steps + 1):
        x = torch.randn(BATCH, FEATURES).pin_memory().cuda(non_blocking=True)
        y = torch.randint(CLASSES, (BATCH,)).cuda()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVALUATION_STEPS == 0:
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.current_stream())
                right = (model(x).argmax(1) == y).sum()
            ended.record(side)
            ended.synchronize()
            began.elapsed_time(ended)
            right.item()
            torch.cuda.Stream().synchronize()
        if step % REPORT_STEPS == 0:
            print(f"step={step} loss={loss.item()!r}", flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
