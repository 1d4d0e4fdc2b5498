"""Trainings with --movable, of which something is killed at random moments: each must end equal.

    .venv/bin/python tests/sweep/images.py [--moments 10] [--seed 1]

A moment is a pause after a place: after a step, when clients are held, while CRIU dumps, or while a
job is restored. Killed are a client (SIGKILL), and in every third run the agent as well. A run is
good when losses and parameters equal those without any fault, and nothing is left behind. A client
that is killed before the first image ends the job, which must be said.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

import movable  # noqa: E402
from job import Job, wait_for  # noqa: E402

STEPS = ("--steps", "60", "--pause", "0.03")
PLACES = ("step", "hold", "dump", "restore")
MOST_PAUSE_S = {"step": 0.5, "hold": 0.05, "dump": 0.3, "restore": 0.8}


def dumps(job: Job) -> int:
    """Return how many images have been begun, of which the last one is the only one to see."""
    numbers = [int(path.name) for path in (job.log_dir / "images").glob("*")]
    return max(numbers, default=0)


def reach(job: Job, place: str, dice: random.Random) -> None:
    """Wait for a place of the run, and then for a moment."""
    movable.wait_for_image(job)
    movable.wait_for_step(job, dice.randrange(14, 25))
    if place in ("hold", "dump"):
        before = dumps(job)
        wait_for(lambda: dumps(job) > before or place == "hold", 30, "another dump")
    if place == "restore":
        os.kill(movable.client(job, 0), signal.SIGKILL)
        wait_for(lambda: "all go back" in job.errors(), 30, "a restore")
    time.sleep(dice.uniform(0, MOST_PAUSE_S[place]))


def disturb(job: Job, place: str, agent_too: bool, dice: random.Random) -> str:
    """Kill something; say what."""
    killed = []
    if place != "restore":
        rank = dice.randrange(2)
        with suppress(ProcessLookupError, StopIteration):
            os.kill(movable.client(job, rank), signal.SIGKILL)
            killed.append(f"rank {rank}")
    if agent_too or place == "restore":
        with suppress(ProcessLookupError):
            os.kill(job.victim("agent"), signal.SIGKILL)
            killed.append("agent")
    return " and ".join(killed)


def run(folder: Path, number: int, seed: int, wanted: set[str]) -> str:
    """Disturb one training; return what is wrong, nothing if it is good."""
    dice = random.Random(f"{seed}-{number}")
    place = PLACES[number % len(PLACES)]
    job = movable.start(folder, *STEPS)
    try:
        reach(job, place, dice)
        killed = disturb(job, place, number % 3 == 2, dice)
        code = job.wait(120)
        if code:
            return f"{place}, {killed}: exit code {code}: {job.errors()[-600:]}"
        if movable.results(job) != wanted:
            return f"{place}, {killed}: other results"
        job.assert_nothing_left()
        print(f"ok   {number} {place}: {killed}", flush=True)
        return ""
    finally:
        job.kill_everything()


def guarded(make: Callable[[], str]) -> str:
    """Return what is wrong, also if that was an exception."""
    try:
        return make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """Return 0 if all runs were good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if why := movable.lacks():
        print(why)
        return 1
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        wanted = movable.undisturbed(Path(name) / "undisturbed", "--steps", "60")
        for number in range(args.moments):
            folder = Path(name) / str(number)
            wrong = guarded(lambda f=folder, n=number: run(f, n, args.seed, wanted))
            if wrong:
                bad += 1
                print(f"BAD  {number} {wrong}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{args.moments - bad} of {args.moments} good")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
