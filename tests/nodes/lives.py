"""Does a restored client make the same entries again? Says where its second life parts from the first.

    lives.py FOLDER [--ranks N] [--steps N] [--kill STEP] [--every N]

A training is killed and restored (`pyft run --movable`). The log of its first life is kept open, and
compared by threads with that of the second one, from the image's line on. What is printed for each
thread: for how many entries the calls are the same, and whose bytes differ. Needs root and CRIU.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import movable  # noqa: E402

from pyft.agent.process import process_tree  # noqa: E402
from pyft.wire.layout import LOG_HEADER, Mark  # noqa: E402

HEADER = struct.Struct("<IHHQIIQQQ")  # EntryHeader
CUT = struct.Struct("<QQQBBHI")  # CutMark
BY_CHANCE = (Mark.GATE, Mark.CUT)  # their bodies say what the server had come to


class Entry(NamedTuple):
    """What is compared of an entry."""

    call: int
    flags: int
    seq: int
    thread: int
    body: bytes


def entries(fd: int) -> Iterator[Entry]:
    """Yield all that a log still has."""
    names = ("ring_offset", "ring_bytes", "oldest", "appended")
    log = LOG_HEADER.read(os.pread(fd, 4096, 0), *names)
    at, size = log["oldest"], log["ring_bytes"]
    while at < log["appended"]:
        offset = log["ring_offset"] + at % size
        bytes_, call, flags, seq, thread, *_ = HEADER.unpack(os.pread(fd, HEADER.size, offset))
        if call != Mark.PAD:
            body = os.pread(fd, bytes_ - HEADER.size, offset + HEADER.size)
            yield Entry(call, flags, seq, thread, body)
        at += bytes_


def line_of(log: list[Entry], step: int) -> int:
    """Return the number of the entry that is the cut of a step."""
    cuts = [(one.seq, CUT.unpack(one.body[: CUT.size])) for one in log if one.call == Mark.CUT]
    return next(seq for seq, cut in cuts if cut[6] == step and not cut[3])


def compare(first: list[Entry], second: list[Entry]) -> None:
    """Say for each thread how far it makes the same calls, and which differ in their bytes."""
    for thread in sorted({one.thread for one in first}):
        before = [one for one in first if one.thread == thread]
        again = [one for one in second if one.thread == thread]
        same, differ = 0, Counter[int]()
        for a, b in zip(before, again, strict=False):
            if (a.call, a.flags) != (b.call, b.flags):
                print(f"thread {thread}: entry {a.seq} was call {a.call}, now call {b.call}")
                break
            same += 1
            differ[a.call] += a.call not in BY_CHANCE and a.body != b.body
        found = {call: count for call, count in differ.items() if count}
        print(
            f"thread {thread}: {same} of {len(before)} calls again; other bytes: {found or 'none'}"
        )


def open_logs(launcher: int, ranks: int) -> dict[int, int]:
    """Return the logs of all ranks as soon as they are there."""
    found: dict[int, int] = {}
    while len(found) < ranks:
        for pid in process_tree.descendants(launcher):
            for fd in Path(f"/proc/{pid}/fd").glob("*"):
                try:
                    name = re.search(r"memfd:pyft-log-rank(\d+)", os.readlink(fd))
                    if name and int(name[1]) not in found:
                        found[int(name[1])] = os.open(fd, os.O_RDONLY)
                except OSError:
                    continue
        time.sleep(0.1)
    return found


def main() -> None:
    """Kill, wait for the end, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kill", type=int, default=20)
    parser.add_argument("--every", default="6")
    args = parser.parse_args()
    training = ("--steps", str(args.steps), "--pause", "0.03")
    job = movable.start(args.folder, *training, ranks=args.ranks, PYFT_IMAGE_EVERY=args.every)
    logs = open_logs(job.launcher, args.ranks)
    movable.wait_for_image(job)
    movable.wait_for_step(job, args.kill, args.ranks - 1)
    os.kill(movable.client(job, args.ranks - 1), signal.SIGKILL)
    if job.wait(600):
        raise SystemExit(job.errors())
    back = re.search(r"image of step \[(\d+)\]", job.errors())
    assert back, job.errors()
    for rank, fd in sorted(logs.items()):
        first = list(entries(fd))
        line = line_of(first, int(back[1]))
        ring = os.open(next(job.log_dir.glob(f"rank{rank}-*.ring")), os.O_RDONLY)
        print(
            f"rank {rank}: from the line of step {back[1]}, entry {line}, to entry {first[-1].seq}"
        )
        compare(*([one for one in log if one.seq > line] for log in (first, entries(ring))))


if __name__ == "__main__":
    main()
