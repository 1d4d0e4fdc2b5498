"""Jobs on several hosts, of which one is lost at a random moment: each must end equal.

    .venv/bin/python tests/sweep/hosts.py [--moments 10] [--seed 1] [--lost host | server] [--shape N]

A moment is a pause after a place: after a step, in a hold, in a dump, while mirrors travel, or while all
go back after another loss. Runs take the shapes of SHAPES in turn, each with every place and with
each way to meet, torchrun or a file. Lost is one of the hosts that train, silently; in every third
run another one's agent is killed as well. A run is good when losses and parameters equal those without
any fault. With --lost server it is the server of one host, which is replaced alone: nobody goes
back because of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402
from job import wait_for  # noqa: E402

STEPS = 60
TRAINING = ("--steps", str(STEPS), "--pause", "0.1")
END_S = 240
PLACES = ("step", "image", "mirror", "back")
LAST_STEP = 26  # at which a host is lost: later ones take as long as the job lingers
MOST_PAUSE_S = {"step": 1.0, "image": 0.6, "mirror": 0.3, "back": 2.5}


@dataclass(frozen=True)
class Shape:
    """What trains, on how many hosts of how many ranks."""

    case: str  # of tests/nodes/programs/train_case.py; nothing: train.py
    places: int
    ranks_each: int = 1

    @property
    def program(self) -> str:
        return movable.CASE if self.case else movable.TRAIN

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*(("--case", self.case) if self.case else ()), *TRAINING)

    def __str__(self) -> str:
        return f"{self.case or 'mlp'} on {self.places} x {self.ranks_each}"


SHAPES = (
    Shape("", 2),
    Shape("gpt", 2),
    Shape("fsdp", 3),
    Shape("loader", 2),
    Shape("pipelines", 4),
    Shape("scaler", 3),
    Shape("ema", 2),
    Shape("fsdp", 2, 2),
    Shape("collectives", 4),
)


@dataclass(frozen=True)
class Moment:
    """One run, as its number and the seed have it."""

    number: int
    seed: int
    shape: Shape

    @property
    def place(self) -> str:
        return PLACES[self.turn % len(PLACES)]

    @property
    def torchrun(self) -> str:
        return "static" if self.turn // len(PLACES) % 2 == 0 else ""

    @property
    def turn(self) -> int:
        """Return how many rounds of the shapes came before; each begins at another place."""
        return self.number // len(SHAPES) + self.number % len(SHAPES)

    def dice(self) -> random.Random:
        return random.Random(f"{self.seed}-{self.number}")


def entries(job: several.SeveralHosts) -> list[dict]:
    """Return the head's ledger."""
    return [json.loads(line) for line in (job.folder / "ledger").read_text().splitlines()]


def away_s(job: several.SeveralHosts) -> float:
    """Return how long it took from the choice of another host until all went on."""
    chosen = next(entry["at"] for entry in entries(job) if entry["kind"] == "chosen")
    return (
        next(e["at"] for e in entries(job) if e["kind"] == "onward" and e["at"] > chosen) - chosen
    )


def images(job: several.SeveralHosts) -> int:
    """Return how many images have been begun."""
    return sum(entry["kind"] == "image" for entry in entries(job))


def dumped(job: several.SeveralHosts, before: int) -> bool:
    """Say whether the first host has a whole image that is later than another one."""
    root = Path(f"/proc/{job.fabric.hosts[0].pid}/root")  # a link is to what only its host sees
    for path in (job.folder / "log-h0" / "images").glob("*"):
        with contextlib.suppress(OSError):  # it is dropped just now
            real = os.readlink(path) if path.is_symlink() else str(path)
            if int(path.name) > before and (root / real[1:] / "inventory.img").exists():
                return True
    return False


def reach(job: several.SeveralHosts, place: str, dice: random.Random) -> None:
    """Wait for a place of the run, and then for a moment."""
    job.wait_for_line()
    if place == "step":
        job.wait_for_step(1, dice.randrange(8, LAST_STEP))
    elif place in ("image", "mirror"):
        before = images(job)
        wait_for(lambda: images(job) > before, 30, job.everything)
        # An image may be passed over: the next one counts.
        wait_for(lambda: place == "image" or dumped(job, before), 30, job.everything)
    else:
        job.kill_in("h0", "client")
        wait_for(lambda: "all go back" in job.said("head"), 30, job.everything)
    time.sleep(dice.uniform(0, MOST_PAUSE_S[place]))


def killed(job: several.SeveralHosts, name: str, role: str) -> bool:
    """Kill agent or server of a host; say whether there was one, where another may be starting."""
    try:
        job.kill_in(name, role)
    except (OSError, ValueError, LookupError, subprocess.CalledProcessError):
        return False
    return True


def started(folder: Path, moment: Moment, hosts: fabric.Fabric) -> several.SeveralHosts:
    """Start the job of a run."""
    shape = moment.shape
    return several.SeveralHosts(
        folder,
        hosts,
        *shape.arguments,
        places=shape.places,
        ranks_each=shape.ranks_each,
        lingers=True,
        torchrun=moment.torchrun,
        program=shape.program,
    )


def run_alone(folder: Path, moment: Moment, wanted: set[str]) -> str:
    """Lose a server of one job; return what is wrong, nothing if it is good."""
    dice, place = moment.dice(), moment.place
    victim = dice.randrange(moment.shape.places)
    what = f"{moment.shape}, {place}: server of h{victim} is killed"
    with fabric.Fabric(moment.shape.places + 1) as hosts:
        job = started(folder, moment, hosts)
        try:
            reach(job, place, dice)
            before = job.said("head").count("all go back")
            name = f"h{victim}"
            wait_for(lambda: killed(job, name, "server"), 20, job.everything)
            code = job.wait(END_S)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{what}: {error}\n=== at the end\n{job.everything()}"
        alone = job.said("head").count("it is replaced alone")
        back = job.said("head").count("all go back") - before
        if code or job.results() != wanted:
            return f"{what}: exit code {code}, or other results: {job.everything()}"
        if place != "back" and (alone, back) != (1, 0):
            return f"{what}: [{alone}] replaced alone, [{back}] times all back: {job.everything()}"
        print(f"ok   {moment.number} {what}; [{alone}] replaced alone", flush=True)
        return ""


def run(folder: Path, moment: Moment, wanted: set[str]) -> str:
    """Lose a host of one job; return what is wrong, nothing if it is good."""
    dice, places = moment.dice(), moment.shape.places
    victim = dice.randrange(places)
    how = ", torchrun" if moment.torchrun else ""
    what = f"{moment.shape}, {moment.place}{how}: h{victim} is lost"
    with fabric.Fabric(places + 1) as hosts:
        job = started(folder, moment, hosts)
        try:
            reach(job, moment.place, dice)
            hosts.hosts[victim].kill()
            if moment.number % 3 == 2:
                other = f"h{(victim + 1) % places}"
                wait_for(lambda: killed(job, other, "agent"), 20, f"{what}: no agent to kill")
                what += f", agent of {other} killed"
            code = job.wait(END_S)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{what}: {error}\n=== at the end\n{job.everything()}"
        if code:
            return f"{what}: exit code {code}: {job.everything()}"
        if "takes place" not in job.said("head"):
            return f"{what}: it was lost after the end"
        if job.results() != wanted:
            return f"{what}: other results: {job.everything()}"
        print(f"ok   {moment.number} {what}; restored in [{away_s(job):.1f}] s", flush=True)
        return ""


def main() -> int:
    """Return 0 if all runs were good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lost", choices=("host", "server"), default="host")
    parser.add_argument("--shape", type=int, choices=range(len(SHAPES)), help="only this one")
    args = parser.parse_args()
    if why := movable.lacks() or fabric.lacks():
        print(why)
        return 1
    bad = 0
    wanted: dict[Shape, set[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(args.first, args.first + args.moments):
            shape = SHAPES[number % len(SHAPES) if args.shape is None else args.shape]
            if shape not in wanted:
                wanted[shape] = movable.undisturbed(
                    Path(name) / f"undisturbed-{len(wanted)}",
                    *shape.arguments,
                    ranks=shape.places * shape.ranks_each,
                    program=shape.program,
                )
            one = run_alone if args.lost == "server" else run
            wrong = one(Path(name) / str(number), Moment(number, args.seed, shape), wanted[shape])
            if wrong:
                bad += 1
                print(f"BAD  {number} {wrong}", flush=True)
    print(f"{args.moments - bad} of {args.moments} good")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
