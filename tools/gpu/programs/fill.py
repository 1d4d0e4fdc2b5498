"""Fill the GPU with chunks of memory, change all of them in each step, look at them at the end.

fill.py CHUNKS MIB STEPS
"""

from __future__ import annotations

import sys

import torch


def main() -> None:
    chunks, mib, steps = map(int, sys.argv[1:])
    numbers = (mib << 20) // 4
    held = [torch.arange(numbers, dtype=torch.int32, device="cuda").add_(n) for n in range(chunks)]
    weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.125)
    for step in range(1, steps + 1):
        for chunk in held:
            chunk.add_(step)
        loss = (weight * weight).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        print(f"step={step} loss={loss.item()!r}", flush=True)
        optimizer.step()
    pattern = torch.arange(numbers, dtype=torch.int32, device="cuda")
    pattern.add_(steps * (steps + 1) // 2)
    wrong = 0
    for chunk in held:
        wrong += int(not torch.equal(chunk, pattern))
        pattern.add_(1)
    print(f"total wrong={wrong} of {chunks}", flush=True)


if __name__ == "__main__":
    main()
