"""What a hold costs beyond the drain (`hold.py [--holds N] [--json FILE]`).

A training of two ranks is held again and again, by this program in the agent's place. Counted is the
time from when all is ready for an image (each client stands behind its cut, its server has taken
everything, and the cut is the line of both) to when the last client has gone on. Drain and snapshot
come before that, and are those of any cut. Ends with 1 when the target is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

import movable  # noqa: E402
import result_file  # noqa: E402
from figures import Figure, exit_code, print_table  # noqa: E402
from job import Job  # noqa: E402

from pyft.agent.channel import page  # noqa: E402
from pyft.agent.channel.channel import Channel  # noqa: E402
from pyft.agent.channel.untrusted import log_header  # noqa: E402

AHEAD = 2
HOLD_S = 2.0


def channels_of(job: Job) -> list[Channel]:
    """Open the memory of all ranks, which the agent has."""
    meta = job.meta()
    found = []
    for live in meta["live"]:
        fds = [
            os.open(f"/proc/{meta['agent_pid']}/fd/{live[name]}", os.O_RDWR)
            for name in ("log_fd", "control_fd")
        ]
        identity = (live["name"], live["rank"], live["pid"], live["device"], live["epoch"])
        found.append(Channel(*identity, *fds))
    return found


def is_ready(channel: Channel, step: int) -> bool:
    """Say whether an image could be made of a rank."""
    state = page.read(channel.control_fd)
    appended = log_header(channel.log_fd)["appended"]
    stands = state.held_step == step and state.consumed >= appended
    return stands and state.snapshot_cut >= state.held_cut


def hold_once(channels: list[Channel]) -> float | None:
    """Return the milliseconds of one hold; None if it has not come about."""
    step = AHEAD + max(page.read(c.control_fd).steps for c in channels)
    until = time.monotonic_ns() + int(HOLD_S * 1e9)
    for channel in channels:
        channel.hold(step, until)
    while not all(is_ready(channel, step) for channel in channels):
        if time.monotonic_ns() > until:
            break
    ready = time.monotonic_ns()
    for channel in channels:
        channel.hold(0, 0)
    if ready > until:
        return None
    while any(page.read(channel.control_fd).held_step for channel in channels):
        time.sleep(0)
    return (max(page.read(c.control_fd).went_on_ns for c in channels) - ready) / 1e6


def measure(holds: int) -> list[float]:
    """Return the milliseconds of so many holds of one training."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        job = movable.start(Path(name), "--steps", "100000", movable=False, PYFT_REPLAY="all")
        try:
            movable.wait_for_step(job, 20)
            channels = channels_of(job)
            deadline = time.monotonic() + 60.0
            while len(found) < holds and time.monotonic() < deadline:
                if (cost := hold_once(channels)) is not None:
                    found.append(cost)
        finally:
            job.kill_everything()
    return found


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = [Figure("hold at a cut, beyond the drain", measure(args.holds), "ms", at_most=1.0)]
    print_table(figures)
    if args.json:
        result_file.write(args.json, figures)
    return exit_code("hold", figures)


if __name__ == "__main__":
    sys.exit(main())
