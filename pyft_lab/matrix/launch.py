"""Starts the ranks of a cell, and all of them anew when one has failed.

    python -m pyft_lab.matrix.launch CELL_FOLDER RANKS RANKS_AFTER MAX_RESTARTS TIMEOUT_S

It stands for a job's launcher and knows no torch, so it restarts sooner than torchrun does. On soft
GPUs it is the command of `pyft run`. `launch.json` says how it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pyft_lab.matrix.storage import SmallDisk, Tracer, has_small_disk
from pyft_lab.matrix.supervisor import Action, Supervisor

POLL_S = 0.05
GIVE_TIME_S = 2.0  # for the other ranks to end when they are asked to


def start(folder: Path, ranks: int, attempt: int) -> list[subprocess.Popen[bytes]]:
    """Start all ranks of an attempt."""
    started = []
    for rank in range(ranks):
        numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        words = [str(folder), str(attempt), str(rank), str(os.getpid())]
        command = [sys.executable, "-m", "pyft_lab.workloads.train", *words]
        with (folder / f"output-{attempt}-{rank}").open("wb") as output:
            started.append(
                subprocess.Popen(
                    command, env=os.environ | numbers, stdout=output, stderr=subprocess.STDOUT
                )
            )
    return started


def make_memory(folder: Path, ranks: int) -> None:
    """Make memory that outlives ranks, two places each, and say where it is."""
    places = [[os.memfd_create(f"rank-{rank}-{n}") for n in range(2)] for rank in range(ranks)]
    paths = [[f"/proc/{os.getpid()}/fd/{fd}" for fd in fds] for fds in places]
    (folder / "memory.json").write_text(json.dumps(paths))


def end(ranks: list[subprocess.Popen[bytes]], patience_s: float) -> None:
    """Ask ranks to end, as torchrun does, then end them."""
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    last = time.monotonic() + patience_s
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < last:
        time.sleep(POLL_S)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()


def supervise(
    folder: Path, count: int, after: int, supervisor: Supervisor, disk: SmallDisk | None = None
) -> Action:
    """Run a cell to its end, and return how it ended; later attempts have `after` ranks."""
    begin, ranks, tracer = time.monotonic(), start(folder, count, 0), Tracer(folder)
    try:
        while True:
            action = supervisor.next([rank.poll() for rank in ranks], time.monotonic() - begin)
            if action is Action.WAIT:
                tracer.poll([rank.pid for rank in ranks if rank.poll() is None])
                time.sleep(POLL_S)
            elif action is Action.END_OTHERS:
                end(ranks, GIVE_TIME_S)
            elif action is Action.LAUNCH:
                if disk:
                    disk.make_room()
                ranks = start(folder, after, supervisor.attempt)
            else:
                return action
    finally:
        end(ranks, 0)
        tracer.close()
        if disk:
            disk.close()


def main() -> int:
    folder, ranks, after, restarts, timeout_s = Path(sys.argv[1]), *map(int, sys.argv[2:6])
    make_memory(folder, max(ranks, after))
    supervisor = Supervisor(max_restarts=restarts, timeout_s=timeout_s)
    kinds = {fault["kind"] for fault in json.loads((folder / "cell.json").read_text())["faults"]}
    disk = SmallDisk(folder / "checkpoints") if has_small_disk(kinds) else None
    action = supervise(folder, ranks, after, supervisor, disk)
    ended = {"action": action.value, "attempts": supervisor.attempt + 1}
    (folder / "launch.json").write_text(json.dumps(ended))
    return 0 if action is Action.DONE else 1


if __name__ == "__main__":
    sys.exit(main())
