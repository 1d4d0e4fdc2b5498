"""Starts a program on several ranks: what torchrun does, without the seconds it takes to import torch.

    python ranks.py RANKS PROGRAM [ARGUMENTS]

The first rank that fails ends the others and the command, with exit code 1; with RANKS_PATIENT in the
environment all ranks end by themselves first. Tests of what torchrun itself does, or that torchrun may trip
over, start it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time

PATIENCE_S = 30.0  # for a rank that is asked to end
LOOK_S = 0.02


def free_port() -> int:
    """Return a port below those that the kernel gives to connections, so that it stays free."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def start(ranks: int, command: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start all ranks, with the variables that torchrun sets."""
    port = str(free_port())
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [
        subprocess.Popen(
            [sys.executable, "-u", *command],
            env=os.environ | job | sizes | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]


def end(all_ranks: list[subprocess.Popen[bytes]]) -> None:
    """End all ranks; those that do not listen are killed."""
    for rank in all_ranks:
        rank.terminate()
    deadline = time.monotonic() + PATIENCE_S
    for rank in all_ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def main() -> int:
    """Return the exit code of the command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    patient = "RANKS_PATIENT" in os.environ
    all_ranks = start(int(sys.argv[1]), sys.argv[2:])
    try:
        while True:
            codes = [rank.poll() for rank in all_ranks]
            if any(codes) and not patient:
                return 1
            if None not in codes:
                return int(any(codes))
            time.sleep(LOOK_S)
    finally:
        end(all_ranks)


if __name__ == "__main__":
    sys.exit(main())
