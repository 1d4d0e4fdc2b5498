"""Starts the ranks of a cell, and all of them anew, or the one, when one has failed.

    python -m pyft_lab.matrix.launch CELL_FOLDER RANKS RANKS_AFTER MAX_RESTARTS TIMEOUT_S ATTEMPT

It stands for a job's launcher and knows no torch, so it restarts sooner than torchrun does. On soft
GPUs it is the command of `pyft run`. `launch.json` says how it ended. ATTEMPT is that of its first
ranks, if other launchers of the cell have been before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pyft_lab.matrix import tied
from pyft_lab.matrix.storage import SmallDisk, Tracer, has_small_disk
from pyft_lab.matrix.supervisor import Action, Supervisor
from pyft_lab.mechanisms import find

POLL_S = 0.05
GIVE_TIME_S = 2.0  # for the other ranks to end when they are asked to


def start_one(folder: Path, ranks: int, attempt: int, rank: int) -> subprocess.Popen[bytes]:
    """Start a rank of an attempt."""
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    words = [str(folder), str(attempt), str(rank), str(os.getpid())]
    command = [sys.executable, "-m", "pyft_lab.workloads.train", *words]
    with (folder / f"output-{attempt}-{rank}").open("ab") as output:  # so a job can be dumped
        return subprocess.Popen(
            command, env=os.environ | numbers, stdout=output, stderr=subprocess.STDOUT
        )


def start(folder: Path, ranks: int, attempt: int) -> list[subprocess.Popen[bytes]]:
    """Start all ranks of an attempt."""
    return [start_one(folder, ranks, attempt, rank) for rank in range(ranks)]


def start_service(folder: Path, words: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """Start what a mechanism wants beside the ranks, if it does; it ends with this process."""
    if not words:
        return []
    command = [sys.executable, str(Path(tied.__file__)), str(os.getpid()), sys.executable, *words]
    with (folder / "output-service").open("wb") as output:
        return [subprocess.Popen([*command, str(folder)], stdout=output, stderr=subprocess.STDOUT)]


def make_memory(folder: Path, ranks: int, count: int) -> None:
    """Make memory that outlives ranks, so many places each, and say where it is."""
    places = [[os.memfd_create(f"rank-{rank}-{n}") for n in range(count)] for rank in range(ranks)]
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
    begin, tracer = time.monotonic(), Tracer(folder)
    ranks = start(folder, count, supervisor.attempt)
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
            elif action is Action.LAUNCH_ONE:
                failed = next(n for n, rank in enumerate(ranks) if rank.poll() not in (None, 0))
                ranks[failed] = start_one(folder, count, supervisor.attempt, failed)
            else:
                return action
    finally:
        end(ranks, 0)
        tracer.close()
        if disk:
            disk.close()


def main() -> int:
    folder, ranks, after, restarts, timeout_s, attempt = (
        Path(sys.argv[1]), *map(int, sys.argv[2:7])
    )  # fmt: skip
    cell = json.loads((folder / "cell.json").read_text())
    mechanism = find(cell["mechanism"])
    make_memory(folder, max(ranks, after), mechanism.places)
    one_by_one = mechanism.one_by_one
    supervisor = Supervisor(restarts, timeout_s, attempt, one_by_one=one_by_one)
    kinds = {fault["kind"] for fault in cell["faults"]}
    disk = SmallDisk(folder / "checkpoints") if has_small_disk(kinds) else None
    service = start_service(folder, mechanism.service)
    try:
        action = supervise(folder, ranks, after, supervisor, disk)
    finally:
        end(service, GIVE_TIME_S)
    ended = {"action": action.value, "attempts": supervisor.attempt + 1}
    (folder / "launch.json").write_text(json.dumps(ended))
    return 0 if action is Action.DONE else 1


if __name__ == "__main__":
    sys.exit(main())
