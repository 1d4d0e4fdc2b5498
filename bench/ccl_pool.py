"""Forked processes that measure together: barriers with deadlines, blocks timed over all of them."""

from __future__ import annotations

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

    def __init__(self, rank: int, size: int, barrier: Barrier) -> None:
        self.rank, self.size, self._barrier = rank, size, barrier
        self.blocks: dict[str, list[Block]] = defaultdict(list)

    def together(self) -> None:
        """Wait until all processes are here."""
        self._barrier.wait(DEADLINE_S)

    def block(self, name: str, action: Callable[[], object], times: int = 1) -> None:
        """Begin with all others at once and note how long `times` actions take."""
        self.together()
        start = time.monotonic()
        for _ in range(times):
            action()
        self.blocks[name].append((start, time.monotonic()))


def _child(
    rank: int, size: int, barrier: Barrier, body: Callable[[Meter], None], pipe: Connection
) -> None:
    meter = Meter(rank, size, barrier)
    try:
        body(meter)
        meter.together()
        pipe.send(dict(meter.blocks))
    except BaseException:
        barrier.abort()
        pipe.send(traceback.format_exc())


def measure(size: int, body: Callable[[Meter], None]) -> dict[str, list[float]]:
    """Run body(meter) in `size` processes; return per block the seconds from first start to last end.

    Raises RuntimeError with the traceback of the process that failed first.
    """
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(size)
    pipes, children = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(rank, size, barrier, body, theirs))
        child.daemon = True  # ends with this process
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    reports = _reports(pipes)
    for child in children:
        child.join(DEADLINE_S)
    failures = [text for text in reports if isinstance(text, str)]
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
    reports: dict[Connection, dict[str, list[Block]] | str] = {}
    missing = set(pipes)
    while missing:
        ready = wait(list(missing), DEADLINE_S * 4)
        if not ready:
            return [f"[{len(missing)}] processes do not answer"]
        for pipe in ready:
            missing.discard(pipe)
            try:
                reports[pipe] = pipe.recv()
            except EOFError:
                reports[pipe] = "a process ended without a report"
    return [reports[pipe] for pipe in pipes]
