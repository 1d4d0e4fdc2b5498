"""`make demo-hosts`: two hosts train, one loses its power, a spare host goes on with its place.

Hosts are namespaces of this machine, each with its own network, processes and soft GPU. At the end losses
and parameters are compared with a training without any fault: bit by bit.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402
from job import wait_for  # noqa: E402

STEPS = 80
TRAINING = ("--steps", str(STEPS), "--pause", "0.1")
KILL_AT = 30
WIDTH = 22


class Story:
    """What is shown of the hosts."""

    def __init__(self, job: several.SeveralHosts) -> None:
        self._job = job
        self._dead: set[str] = set()
        self._began = time.monotonic()

    def tell(self, sentence: str) -> None:
        """Print a sentence, and a picture below it."""
        print(f"\n{time.monotonic() - self._began:5.1f} s  {sentence}\n")
        boxes = [self._box(host.name) for host in self._job.fabric.hosts]
        for row in zip(*boxes, strict=True):
            print("   " + "  ".join(row))
        middle = (WIDTH + 2) * len(boxes)
        print("   " + f"|  head: {self._line()}".center(middle))

    def lose_power(self, name: str) -> None:
        """Kill a host."""
        self._dead.add(name)
        next(host for host in self._job.fabric.hosts if host.name == name).kill()

    def _box(self, name: str) -> list[str]:
        inside = [name, *self._inside(name)]
        edge = "+" + "-" * (WIDTH - 2) + "+"
        return [edge, *(f"|{line.center(WIDTH - 2)}|" for line in inside), edge]

    def _inside(self, name: str) -> tuple[str, str]:
        if name in self._dead:
            return "no power", ""
        places = re.findall(r"place \[(\d)\] is on host \[(\w+)\]", self._job.said("head"))
        place = next((place for place, host in places if host == name), None)
        if place is None:
            return "spare", "keeps images"
        path = self._job.folder / f"{name}.stdout"
        steps = re.findall(r"step=(\d+)", path.read_text() if path.exists() else "")
        return f"place {place}", f"rank {place}: step {steps[-1] if steps else '-'}"

    def _line(self) -> str:
        lines = re.findall(r"line of all: step \[(\d+)\]", self._job.said("head"))
        return f"all can go back to step {lines[-1]}" if lines else "no line yet"


def main() -> int:
    """Return 0 if the bits are equal."""
    if why := movable.lacks() or fabric.lacks():
        print(f"the demo cannot run here: {why}")
        return 1
    with tempfile.TemporaryDirectory() as name:
        print("first the training without any fault, on one host ...", flush=True)
        wanted = movable.undisturbed(Path(name) / "undisturbed", "--steps", str(STEPS))
        with fabric.Fabric(3) as hosts:
            job = several.SeveralHosts(Path(name) / "hosts", hosts, *TRAINING)
            code = show(Story(job), job)
        equal = job.results() == wanted
        hashes = sorted(line for line in job.results() if "sha256" in line)
        print("\n".join(["", *hashes]))
        print(f"{len(wanted)} losses and hashes: {'all bits are equal' if equal else 'DIFFERENT'}")
        return code or int(not equal)


def show(story: Story, job: several.SeveralHosts) -> int:
    """Tell the story; return the head's exit code."""
    job.wait_for_step(1, 3)
    story.tell("two hosts train, the third one is a spare")
    job.wait_for_line()
    job.wait_for_step(1, KILL_AT)
    story.tell("all were held for a moment, and dumped; the images are on the spare host")
    story.lose_power("h1")
    story.tell("h1 loses its power. Nobody hears of it: it is only silent")
    wait_for(lambda: "host [h2] takes place [1]" in job.said("head"), 60, job.everything())
    story.tell("its lease has ended: h2 takes its place, and all go back to the line")
    wait_for(lambda: "have come back, and go on" in job.said("head"), 60, job.everything())
    story.tell("all have come back")
    code = job.wait(120)
    story.tell(f"the training has ended with [{code}]")
    ledger = [json.loads(line) for line in (job.folder / "ledger").read_text().splitlines()]
    print(f"\n{len(ledger)} decisions in the head's ledger: " + decisions(ledger))
    return code


def decisions(ledger: list[dict]) -> str:
    """Return how many there were of which kind."""
    kinds = [entry["kind"] for entry in ledger]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


if __name__ == "__main__":
    sys.exit(main())
