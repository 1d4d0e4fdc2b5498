"""One job that runs as long as a soak, is disturbed by orders, and whose growth is measured.

It pauses after each step, so that other runs have the processors. Afterwards the same steps run
without pauses and protection: the lines of both must be equal.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from growth import SMALL_RINGS, Sample, below, roles, sample, shared_objects
from job import Job
from recovery_run import RANKS, lines
from slopes import summary

from pyft.agent.operators import orders
from pyft.errors import PyftError

PROGRAM = str(Path(__file__).resolve().parents[1] / "nodes" / "programs" / "train.py")
RANKS_OF_IT, SPARES = 2, 2
PAUSE_S = 0.2  # of each step
STEP_S = 0.1  # what a step takes beside, on a busy machine
SAMPLE_S = 5.0
BETWEEN_S = (8.0, 25.0)  # two disturbances
RECOVERED_S = 90.0
WORDS = (
    "replace",
    "agent",
    "drain",
    "server-kill",
    "sticky",
    "hang",
    "comm-drop",
    "gpu-lost",
    "ecc",
)
TAKES_GPU = ("gpu-lost", "ecc", "drain")
# The arena gets what each cut says is live: this one is full, and written over, in half an hour.
SETTINGS = SMALL_RINGS | {"PYFT_HANG_S": "5", "PYFT_ARENA_MB": "16"}
Life = tuple[str, int]  # role and process


class Endurance(threading.Thread):
    """The long job. `note` gets what is known so far."""

    def __init__(
        self, folder: Path, seconds: float, seed: str, note: Callable[[Mapping[str, Any]], None]
    ) -> None:
        super().__init__(name="endurance")
        self._folder, self._seconds, self._note = folder, seconds, note
        self._dice = random.Random(f"{seed} endurance")
        self._halt = threading.Event()
        self._steps = max(50, int(seconds / (PAUSE_S + STEP_S)))
        self._given: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._late: Counter[str] = Counter()  # recoveries that were not seen in time
        self._lives: dict[Life, list[Sample]] = {}
        self._objects: list[tuple[int, int, int]] = []  # milliseconds, objects, kB
        self._away: list[int] = []  # GPUs that were lost or drained, the oldest first
        self.complaint = ""

    def stop(self) -> None:
        """Let it come to its end soon."""
        self._halt.set()

    def run(self) -> None:
        """Disturb and measure, and compare at the end."""
        try:
            job = self._launch("long", "--pause", str(PAUSE_S), protect="snapshot")
            try:
                code = self._watched(job)
                got = lines(job)
            finally:
                job.kill_everything()
            if not self._halt.is_set():
                self._compare(code, got, job)
        except Exception as error:
            self.complaint = f"{type(error).__name__}: {error}".splitlines()[0]
        self._note(self.seen())

    def _launch(self, name: str, *arguments: str, protect: str) -> Job:
        command = [sys.executable, RANKS, str(RANKS_OF_IT), PROGRAM, "--steps", str(self._steps)]
        options = ("--gpus", f"soft:{RANKS_OF_IT}", "--protect", protect)
        if protect != "none":
            options += ("--spares", str(SPARES))
        folder = self._folder / name
        folder.mkdir(parents=True)
        return Job(folder, [*command, *arguments], options=options, environment=SETTINGS)

    def _watched(self, job: Job) -> int | None:
        """Disturb it until it has ended, or its time is over; return its exit code."""
        job.wait_attached()
        began, due = time.monotonic(), self._dice.uniform(*BETWEEN_S)
        while not job.over():
            now = time.monotonic() - began
            if now > self._seconds * 1.2 + 60 or self._halt.is_set():
                job.send(signal.SIGTERM)
                return job.wait(30) and None
            self._look(job, int(1000 * now))
            if now > due:
                self._disturb(job)
                due = time.monotonic() - began + self._dice.uniform(*BETWEEN_S)
            time.sleep(SAMPLE_S)
        return job.wait(30)

    def _look(self, job: Job, at: int) -> None:
        """Measure all processes of the job."""
        with contextlib.suppress(OSError, ValueError, KeyError):  # a new agent writes it
            for who, pid in roles(job.meta(), job.launcher).items():
                with contextlib.suppress(OSError):  # it is being replaced
                    self._lives.setdefault((who, pid), []).append(sample(pid, at))
        objects = shared_objects(below(job.launcher))
        self._objects.append((at, len(objects), sum(objects.values())))
        self._note(self.seen())

    def _disturb(self, job: Job) -> None:
        """Let one thing happen, and wait until all work again."""
        before = job.errors().count("goes on after")
        word = self._dice.choice(WORDS)
        try:
            self._order(job, word)
        except (PyftError, OSError, ValueError, KeyError) as error:
            self._refused[f"{word}: {str(error).partition('[')[0].strip()}"] += 1
            return
        self._given[word] += 1
        if word == "agent":
            return
        deadline = time.monotonic() + RECOVERED_S
        while job.errors().count("goes on after") == before and not job.over():
            if time.monotonic() > deadline or self._halt.is_set():
                self._late[word] += 1
                return
            time.sleep(0.2)

    def _order(self, job: Job, word: str) -> None:
        meta, rank = job.meta(), self._dice.randrange(RANKS_OF_IT)
        gpu = next(live["gpu"] for live in meta["live"] if live["rank"] == rank)
        if word == "agent":
            os.kill(meta["agent_pid"], signal.SIGKILL)
        elif word == "replace":
            orders.give(meta, "replace", rank=rank, gpu=-1)
        elif word == "drain":
            orders.give(meta, "drain", gpu=gpu)
        else:
            orders.give(meta, "inject", rank=rank, fault=word)
        if word in TAKES_GPU:
            self._away.append(gpu)
            orders.give(job.meta(), "spare", gpu=self._returned())
            self._given["spare returned"] += 1

    def _returned(self) -> int:
        """Return the GPU for the one that leaves: the first time a new one, then the one before it.

        So an operator brings back what was mended. The one that leaves now may still be in use.
        """
        if len(self._away) > 1:
            return self._away.pop(0)
        return RANKS_OF_IT + SPARES

    def _compare(self, code: int | None, got: list[str], job: Job) -> None:
        """Compare with the same steps without faults."""
        reference = self._launch("reference", protect="none")
        try:
            while not reference.over() and not self._halt.wait(0.5):
                pass
            if self._halt.is_set():
                return
            wanted = lines(reference)
        finally:
            reference.kill_everything()
        self._bits = "equal" if set(got) <= set(wanted) else "wrong"
        self._compared = len(set(got) & set(wanted))
        if self._bits == "wrong":
            self.complaint = "lines of the long job differ"
        elif code == 0 and sorted(got) != sorted(wanted):
            self.complaint = "lines of the long job are missing"
        elif code not in (0, None):
            self.complaint = f"the long job ended with [{code}]: {job.errors()[-300:]}"

    _bits, _compared = "not compared", 0

    def seen(self) -> dict[str, Any]:
        """Return what is known so far."""
        return {
            "given": dict(self._given),
            "refused": dict(self._refused),
            "late": dict(self._late),
            "bits": self._bits,
            "compared": self._compared,
            "complaint": self.complaint,
            "growth": summary(self._lives, self._objects),
        }
