"""Does a restored client make the same entries again? Says where its second life parts from the first.

    lives.py FOLDER [--ranks N] [--after N] [--clear] [--free] [--code] [--show N]

A training is killed and restored (`pyft run --movable`). The log of its first life is kept open, and
compared by threads with that of the second one, from the image's line on. What is printed for each
thread: for how many entries the calls are the same, and whose bytes differ. Needs root and CRIU.

--after  steps between the image and the kill
--clear  the client clears what calls leave on the stack (PYFT_CLEAR_STACK=1)
--free   events are compared by what they stand for, not by which they are
--code   says how many differ in bytes of parameters that code can read (needs `make programs`)
--show   so many entries that differ are shown, with the places of their bytes
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import logs  # noqa: E402
import movable  # noqa: E402
import operands  # noqa: E402
from job import Job  # noqa: E402
from logs import LAUNCH, Entry  # noqa: E402

from pyft.agent.process import process_tree  # noqa: E402
from pyft.wire.layout import Mark  # noqa: E402

BY_CHANCE = (Mark.GATE, Mark.CUT)  # their bodies say what the server had come to
Kernels = dict[int, tuple[str, bytes]]


def differs(a: Entry, b: Entry) -> bool:
    """Say whether two entries of one call differ in what counts."""
    return a.call not in BY_CHANCE and a.body != b.body


def differs_to_code(a: Entry, b: Entry, kernels: Kernels) -> bool:
    """Say whether two entries that differ do so in bytes that the GPU can read."""
    if a.call != LAUNCH or len(a.body) != len(b.body):
        return True
    bodies = (operands.without_unread(one.body, kernels) for one in (a, b))
    return next(bodies) != next(bodies)


def places(a: Entry, b: Entry) -> str:
    """Return where the bytes of two entries differ; of a launch, in its parameters."""
    start = operands.LAUNCH_BYTES if a.call == LAUNCH else 0
    found = [at - start for at, (x, y) in enumerate(zip(a.body, b.body, strict=False)) if x != y]
    return f"entry {a.seq}, call {a.call}, {len(found)} bytes, first at {found[:6]}"


def compare(first: list[Entry], second: list[Entry], kernels: Kernels | None, show: int) -> None:
    """Say for each thread how far it makes the same calls, and which differ in their bytes."""
    for thread in sorted({one.thread for one in first}):
        before = [one for one in first if one.thread == thread]
        again = [one for one in second if one.thread == thread]
        same, found, read = 0, Counter[int](), Counter[int]()
        for a, b in zip(before, again, strict=False):
            if (a.call, a.flags) != (b.call, b.flags):
                print(f"thread {thread}: entry {a.seq} was call {a.call}, now call {b.call}")
                break
            same += 1
            found[a.call] += differs(a, b)
            if differs(a, b) and (kernels is None or differs_to_code(a, b, kernels)):
                read[a.call] += 1
                if read.total() <= show:
                    print(f"thread {thread}: {places(a, b)}")
        text = f"{same} of {len(before)} calls again; other bytes: {dict(+found) or 'none'}"
        of_read = f", of which code can read: {dict(read) or 'none'}" if kernels is not None else ""
        print(f"thread {thread}: {text}{of_read}")


def order(first: list[Entry], second: list[Entry]) -> int:
    """Return how many entries come in the same order of all threads."""
    pairs = zip(first, second, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if (a.call, a.thread) != (b.call, b.thread)),
        min(len(first), len(second)),
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


def kill_and_wait(args: argparse.Namespace) -> tuple[Job, int, dict[int, int]]:
    """Kill one rank; return the job when it has ended, the step of the image, and the first logs."""
    if args.folder.exists() and any(args.folder.iterdir()):
        raise SystemExit(f"[{args.folder}] is not empty: it could have the logs of another job")
    training = ("--steps", str(args.steps), "--pause", "0.03")
    settings = {"PYFT_IMAGE_EVERY": args.every, "PYFT_CLEAR_STACK": str(int(args.clear))}
    job = movable.start(args.folder, *training, ranks=args.ranks, **settings)
    found = open_logs(job.launcher, args.ranks)
    movable.wait_for_image(job)
    at = max(int(step) for step in re.findall(r"step=(\d+) ", job.output()))
    movable.wait_for_step(job, at + args.after, args.ranks - 1)
    os.kill(movable.client(job, args.ranks - 1), signal.SIGKILL)
    if job.wait(600):
        raise SystemExit(job.errors())
    back = re.search(r"image of step \[(\d+)\]", job.errors())
    assert back, job.errors()
    return job, int(back[1]), found


def main() -> None:
    """Kill, wait for the end, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, usual in (("ranks", 1), ("steps", 60), ("after", 12), ("show", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--every", default="15")
    for name in ("clear", "free", "code"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    if args.code and operands.lacks():
        raise SystemExit(operands.lacks())
    job, step, found = kill_and_wait(args)
    for rank, fd in sorted(found.items()):
        ring = os.open(next(job.log_dir.glob(f"rank{rank}-*.ring")), os.O_RDONLY)
        lives = [logs.entries(fd), logs.entries(ring)]
        line = logs.line_of(lives[0], step)
        print(f"rank {rank}: from the line of step {step}, entry {line}, to {lives[0][-1].seq}")
        lives = [logs.with_free_events(one) if args.free else one for one in lives]
        first, second = ([one for one in log if one.seq > line] for log in lives)
        compare(first, second, logs.kernels(ring) if args.code else None, args.show)
        print(f"all threads: {order(first, second)} of {len(first)} in the same order")


if __name__ == "__main__":
    main()
