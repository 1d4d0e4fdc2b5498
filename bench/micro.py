"""Runs inside `pyft run`: what a call costs the script. Prints JSON: name -> microseconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch

REPEATS = 11
CALLS = 100
BURST = 1000
LARGE_BYTES = 64 << 20


def timed(action: Callable[[], object], calls: int, after: Callable[[], object]) -> list[float]:
    """Return microseconds per call of each repeat; `after` runs outside the measured time."""
    samples = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(calls):
            action()
        samples.append((time.perf_counter() - started) / calls * 1e6)
        after()
    return samples


def burst(x: torch.Tensor, y: torch.Tensor, wait: Callable[[], None]) -> list[float]:
    """Return what a small kernel costs when the queue is never empty."""

    def action() -> None:
        for _ in range(BURST):
            x.add_(y)
        wait()

    return [time / BURST for time in timed(action, 1, wait)]


def large_copies(wait: Callable[[], None]) -> dict[str, list[float]]:
    """Return the times of copies of 64 MiB between the GPU and pageable memory."""
    host = torch.ones(LARGE_BYTES // 4)
    device = torch.empty_like(host, device="cuda")

    def to_device() -> None:
        device.copy_(host)
        wait()

    return {
        "copy of 64 MiB to the GPU": timed(to_device, 1, wait),
        "copy of 64 MiB to the host": timed(lambda: host.copy_(device), 1, wait),
    }


def main() -> None:
    x = torch.zeros(32, device="cuda")
    one = torch.ones(32, device="cuda")
    wait = torch.cuda.synchronize
    for _ in range(3):
        x.add_(one)
        wait()
    results = {
        "x.add_(y) of 32 floats, enqueued": timed(lambda: x.add_(one), CALLS, wait),
        "synchronize, nothing to wait for": timed(wait, CALLS, wait),
        "x.add_(y) and synchronize": timed(lambda: (x.add_(one), wait()), CALLS, wait),
        "1000 x.add_(y) and one synchronize, each": burst(x, one, wait),
        "x[0].item()": timed(lambda: x[0].item(), CALLS, wait),
        "torch.empty on the GPU": timed(lambda: torch.empty(64, device="cuda"), CALLS, wait),
    }
    results |= large_copies(wait)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
