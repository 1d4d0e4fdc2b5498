"""Forked processes that measure together: barriers with deadlines, blocks timed over all of them."""

from __future__ import annotations

import mmap
import multiprocessing
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Barrier

DEADLINE_S = 120

Block = tuple[float, float]  # start and end by the monotonic clock, which all processes share


class Meter:
    """One process's side of the measurements."""

    def __init__(self, rank: int, size: int, barrier: Barrier, board: mmap.mmap) -> None:
        self.rank, self.size, self._barrier, self._board = rank, size, barrier, board
        self.blocks: dict[str, list[Block]] = defaultdict(list)

    def together(self) -> None:
        """Wait until all processes are here."""
        self._barrier.wait(DEADLINE_S)

    def from_first(self, make: Callable[[], bytes]) -> bytes:
        """Return to all processes what `make` returns in rank 0."""
        if self.rank == 0:
            made = make()
            self._board[: len(made) + 2] = len(made).to_bytes(2, "little") + made
        self.together()
        size = int.from_bytes(self._board[:2], "little")
        given = self._board[2 : 2 + size]
        self.together()
        return given

    def block(self, name: str, action: Callable[[], object], times: int = 1) -> None:
        """Begin with all others at once and note how long `times` actions take."""
        self.together()
        start = time.monotonic()
        for _ in range(times):
            action()
        self.blocks[name].append((start, time.monotonic()))


def _child(
    rank: int,
    size: int,
    shared: tuple[Barrier, mmap.mmap],
    body: Callable[[Meter], None],
    pipe: Connection,
) -> None:
    barrier, board = shared
    meter = Meter(rank, size, barrier, board)
    try:
        body(meter)
        meter.together()
        pipe.send(dict(meter.blocks))
    except BaseException:
        barrier.abort()
        pipe.send(traceback.format_exc())


def measure(size: int, body: Callable[[Meter], None]) -> dict[str, list[float]]:
    """Run body(meter) in `size` processes; return per block the seconds from first start to last end.

    This process must have no threads: a fork would copy the locks that they hold.
    Raises RuntimeError with the traceback of the process that failed first.
    """
    context = multiprocessing.get_context("fork")
    shared = (context.Barrier(size), mmap.mmap(-1, 4096))
    pipes, children = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(rank, size, shared, body, theirs))
        child.daemon = True  # ends with this process
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    reports = _reports(pipes)
    failures = [text for text in reports if isinstance(text, str)]
    for child in children:
        if failures:
            child.kill()  # it may wait for those that failed
        child.join(DEADLINE_S)
    if failures:
        real = [text for text in failures if "BrokenBarrierError" not in text]
        raise RuntimeError((real or failures)[0])
    names = reports[0].keys()
    return {
        name: [
            max(end for _, end in blocks) - min(start for start, _ in blocks)
            for blocks in zip(*(report[name] for report in reports), strict=True)
        ]
        for name in names
    }


def _reports(pipes: list[Connection]) -> list[dict[str, list[Block]] | str]:
    """Collect one report per process, or those until the first failure."""
    reports: dict[Connection, dict[str, list[Block]] | str] = {}
    while len(reports) < len(pipes):
        ready = wait([pipe for pipe in pipes if pipe not in reports], DEADLINE_S)
        if not ready:
            return [f"[{len(pipes) - len(reports)}] processes do not answer"]
        for pipe in ready:
            try:
                reports[pipe] = pipe.recv()
            except EOFError:
                reports[pipe] = "a process ended without a report"
        if any(isinstance(report, str) for report in reports.values()):
            break
    return [reports[pipe] for pipe in pipes if pipe in reports]
