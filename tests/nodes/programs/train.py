"""A training whose losses depend on all that a process has in itself: generators, loops, a log.

    train.py --steps N [--store FILE] [--log FILE] [--each FILE] [--written FILE] [--pause S]
             [--slow FILE] [--linger FILE] [--times FILE] [--ballast MB] [--parted RANK] [--width N]

With --store ranks meet by that file, else as the environment says. --log: each rank appends its lines
to FILE.RANK. --each: the same, but it opens FILE.RANK for each line. --written: it keeps that file
open for writing. --slow: a pause while FILE is there.
--linger: the same from step 20 on, so that the training does not end meanwhile. --times: rank 0
appends the number of each step and the time of day to FILE. --ballast: memory that each rank has
beside what it needs. --parted: this rank leaves out one step of its optimizer, as a GradScaler does
that has found an overflow: its steps have parted from the others' for good. --width: of
the model, and so how long a step takes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SLOW_S, SLOWER_S = 0.8, 4.0  # the second one so that a busy machine has time for what is awaited
SLOWER_FROM = 20
PARTED_AT = 3


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--store")
    parser.add_argument("--log")
    parser.add_argument("--written")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--slow", default="")
    parser.add_argument("--linger", default="")
    parser.add_argument("--times")
    parser.add_argument("--each")
    parser.add_argument("--ballast", type=int, default=0)
    parser.add_argument("--parted", type=int, default=-1)
    parser.add_argument("--width", type=int, default=64)
    return parser.parse_args()


def digest(model: nn.Module) -> str:
    """Return a hash of all parameters."""
    sums = hashlib.sha256()
    for parameter in model.parameters():
        sums.update(parameter.detach().cpu().numpy().tobytes())
    return sums.hexdigest()


def say(line: str) -> None:
    """Print a line with one system call, so that ranks do not write into each other's."""
    os.write(1, f"{line}\n".encode())


def pause(args: argparse.Namespace, step: int) -> float:
    """Return how long to wait behind a step, in seconds."""
    if step < SLOWER_FROM:
        return SLOW_S if os.path.exists(args.slow) else args.pause
    return SLOWER_S if os.path.exists(args.slow) or os.path.exists(args.linger) else args.pause


def main() -> None:
    """Train."""
    args = parse()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if ranks > 1:
        how = {"init_method": f"file://{args.store}"} if args.store else {}
        dist.init_process_group("nccl", rank=rank, world_size=ranks, **how)
    torch.manual_seed(7)
    random.seed(rank)
    model: nn.Module = nn.Sequential(
        nn.Linear(32, args.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(args.width, 8)
    ).to(device)
    if ranks > 1:
        model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ballast = torch.ones(args.ballast << 20, dtype=torch.uint8)
    batches = torch.Generator().manual_seed(rank)  # on the host: CRIU has it, no snapshot
    log = open(f"{args.log}.{rank}", "a") if args.log else None  # noqa: SIM115
    written = open(args.written, "w") if args.written else None  # noqa: SIM115
    for step in range(args.steps):
        inputs = torch.randn(16, 32, generator=batches).to(device)
        wanted = torch.full((16, 8), random.random(), device=device)  # noqa: S311
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        if (rank, step) != (args.parted, PARTED_AT):
            optimizer.step()
        line = f"rank={rank} step={step} loss={loss.item():.9e} norm={norm:.9e}"
        say(line)
        if log:
            log.write(line + "\n")
            log.flush()
        if written:
            written.write(line)
        if args.each:
            with open(f"{args.each}.{rank}", "a") as each:
                each.write(line + "\n")
        if args.times and rank == 0:
            with open(args.times, "a") as times:  # not open while an image is made
                times.write(f"{step} {time.time()}\n")
        time.sleep(pause(args, step))
    say(f"rank={rank} sha256={digest(model)}")
    assert len(ballast) == args.ballast << 20
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
