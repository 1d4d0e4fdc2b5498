"""Runs inside `pyft run`: what a call costs the script. Prints JSON: name -> microseconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch

REPEATS = 11
CALLS = 100


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
        "x[0].item()": timed(lambda: x[0].item(), CALLS, wait),
        "torch.empty on the GPU": timed(lambda: torch.empty(64, device="cuda"), CALLS, wait),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
