"""Allocate until the GPU is full: how much fits, that the failure comes at the call, and that the
next allocation works. Prints the same for every way to the same GPU."""

from __future__ import annotations

import torch

PIECE = 32 << 20


def main() -> None:
    total = torch.cuda.mem_get_info()[1]
    held = []
    try:
        while True:
            held.append(torch.full((PIECE,), len(held) % 256, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print("out of memory", flush=True)
    fit = len(held)
    assert [int(piece[-1]) for piece in held] == [number % 256 for number in range(fit)]
    del held[fit // 2 :]
    torch.cuda.empty_cache()
    large = torch.ones(fit // 4 * PIECE, dtype=torch.uint8, device="cuda")
    assert (int(large[0]), int(large[-1])) == (1, 1)
    print(f"total={total} fit={fit}", flush=True)


if __name__ == "__main__":
    main()
