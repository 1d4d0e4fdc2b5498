"""What several hosts cost, and what the loss of one costs (`hosts.py [--trials N] [--json FILE]`).

Hosts are namespaces of this machine, joined by a bridge; needs root and CRIU (tools/get/criu).

    loss        two hosts and a spare train, one loses its power: seconds from there to the first step
                that had not been made before, less the lease and the steps that are repeated
    image       seconds that all stand still for an image, and more for each GB more of it
    move        one rank, and a place of two under torchrun: from the order to leave until all go on
    scale       the loss of one of 64 hosts without programs / of one of 4: a real head, stand-ins
    step        two hosts over TCP / two processes of one host over TCP: medians of long steps, in
                pairs, of which every other one begins with the one host

Free memory is touched first: a virtual machine is given it only then, and images would wait for that.
Every training ends with the bits of one without any of this, or the benchmark fails. Ends with 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "nodes", "unit/hosts")]

import fabric  # noqa: E402
import movable  # noqa: E402
import real_heads  # noqa: E402
import result_file  # noqa: E402
import several  # noqa: E402
import stand_in_hosts  # noqa: E402
from figures import Figure, exit_code, print_table  # noqa: E402
from job import wait_for  # noqa: E402

from pyft.images import memory  # noqa: E402

LEASE_S = 3.0
STEPS, PAUSE_S = 60, 0.1
FIRST = 5  # step from which on steps are timed
BALLAST_MB = 1000
LONG_STEP_S = 0.05  # shorter ones are decided by which process gets a processor when
WIDTHS = (1024, 4096, 16384, 65536)  # of models, until a step takes as long
TCP = {"FLEXCCL_TRANSPORT": "tcp"}
Job = several.SeveralHosts


def training(pause: float = PAUSE_S, times: Path | None = None) -> tuple[str, ...]:
    """Return the options of the program that trains."""
    more = ("--times", str(times)) if times else ()
    return ("--steps", str(STEPS), "--pause", f"{pause:g}", *more)


def ends_equal(job: Job, wanted: set[str], what: str) -> None:
    """Let it end, and compare."""
    code = job.wait(180)
    if code or job.results() != wanted:
        sys.exit(f"bench/hosts.py: {what}: exit code [{code}] or other bits\n{job.everything()}")


def entries(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the head's decisions of a kind, each with its time of day."""
    lines = (folder / "ledger").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def times_in(path: Path) -> list[tuple[int, float]]:
    """Return which steps rank 0 has ended, and when."""
    pairs = [line.split() for line in path.read_text().splitlines()]
    return [(int(step), float(at)) for step, at in pairs]


def step_s(path: Path) -> float:
    """Return the median of the seconds of a step, but for the first ones."""
    at = [time for step, time in times_in(path) if step >= FIRST]
    return statistics.median(later - earlier for earlier, later in pairwise(at))


def loss_s(folder: Path, wanted: set[str]) -> float:
    """Return what the loss of a host costs beyond its lease and the steps that are repeated."""
    times = folder / "times"
    with fabric.Fabric(3) as hosts:
        job = Job(folder, hosts, *training(times=times), lease=LEASE_S, lingers=True)
        job.wait_for_line()
        job.wait_for_step(0, FIRST)
        job.wait_for_line(2)
        killed = time.time()
        hosts.hosts[1].kill()
        wait_for(lambda: entries(job.folder, "onward"), 90, job.everything)
        ends_equal(job, wanted, "a host is lost")
    found = times_in(times)
    before = max(step for step, at in found if at < killed)
    new = next(at for step, at in found if step > before)
    repeated = [step for step, at in found if step <= before and at > killed]
    return new - killed - LEASE_S - len(repeated) * PAUSE_S


def images(folder: Path, wanted: set[str], ballast: int = 0) -> list[dict[str, float]]:
    """Return all images of two hosts: seconds that all stood still, and bytes. `ballast`: MB."""
    with fabric.Fabric(2) as hosts:
        job = Job(folder, hosts, *training(), "--ballast", str(ballast), every=1.0)
        ends_equal(job, wanted, "images")
    metas = [json.loads(path.read_text()) for path in folder.glob("log-h*/meta.json")]
    return [image for meta in metas for image in meta["images"]]


def frozen(made: list[dict[str, float]]) -> list[float]:
    """Return how long all stood still for each image."""
    return [image["frozen_s"] for image in made]


def gb(made: list[dict[str, float]]) -> float:
    """Return the size of an image."""
    return statistics.median(image["bytes"] for image in made) / 1e9


def slope(small: list[dict[str, float]], large: list[dict[str, float]]) -> float:
    """Return the seconds that each GB more costs."""
    more = statistics.median(frozen(large)) - statistics.median(frozen(small))
    return more / (gb(large) - gb(small))


def move_s(folder: Path, ranks_each: int, torchrun: str, wanted: set[str]) -> float:
    """Return how long all stand still because a place goes to another host."""
    how: dict[str, Any] = {"every": 60.0, "ranks_each": ranks_each, "torchrun": torchrun}
    with fabric.Fabric(3) as hosts:
        job = Job(folder, hosts, *training(), lingers=True, **how)
        job.wait_for_step(1, FIRST)
        ordered = job.ask("drain", "--host", "h1")
        said, _ = ordered.communicate(timeout=90)
        if ordered.returncode:
            sys.exit(f"bench/hosts.py: no host is drained: {said}{job.everything()}")
        ends_equal(job, wanted, "a host is drained")
    return float(entries(job.folder, "onward")[-1]["at"] - entries(job.folder, "leave")[-1]["at"])


def stand_ins_s(folder: Path, places: int) -> float:
    """Return the seconds from a host's loss until all go on; they have no program, restore nothing."""
    folder.mkdir()
    heads = real_heads.Heads(folder, str(folder / "ledger"), 1, places)
    secret, lease = real_heads.SECRET.encode(), real_heads.LEASE
    job = stand_in_hosts.Job(heads.all, secret, lease)
    job.start(places, 1)
    wait_for(job.has_line, 60, heads.everything)
    killed = time.time()
    job.owners[1].die()
    wait_for(lambda: entries(folder, "onward"), 60, heads.everything)
    real_heads.ends_well(job, heads, [0])
    job.end()
    return float(entries(folder, "onward")[0]["at"]) - killed


@dataclass(frozen=True)
class LongSteps:
    """A training whose steps are long enough to be compared, and its results."""

    width: int
    wanted: set[str]

    @classmethod
    def found(cls, folder: Path) -> LongSteps:
        """Try wider models until steps are long enough."""
        for width in WIDTHS:
            found = cls(width, set())
            seconds, results = found.of_one_host(folder / f"width-{width}")
            if seconds >= LONG_STEP_S:
                break
        return cls(width, results)

    def of_one_host(self, folder: Path) -> tuple[float, set[str]]:
        """Return the seconds of a step of two processes of one host over TCP, and the results."""
        folder.mkdir(parents=True)
        times = folder / "times"
        results = movable.undisturbed(folder / "job", *self._arguments(times), **TCP)
        return step_s(times), results

    def of_two_hosts(self, folder: Path) -> float:
        """Return the seconds of a step of two hosts."""
        folder.mkdir(parents=True)
        times = folder / "times"
        with fabric.Fabric(2) as hosts:
            job = Job(folder / "job", hosts, *self._arguments(times), every=600.0)
            ends_equal(job, self.wanted, "two hosts")
        return step_s(times)

    def ratio(self, folder: Path, number: int) -> float:
        """Return the time of a step of two hosts, as a ratio to that of one host."""
        if number % 2:
            one, results = self.of_one_host(folder / "one")
        two = self.of_two_hosts(folder / "two")
        if number % 2 == 0:
            one, results = self.of_one_host(folder / "one")
        if results != self.wanted:
            sys.exit("bench/hosts.py: one host over TCP has other bits")
        return two / one

    def _arguments(self, times: Path) -> tuple[str, ...]:
        return (*training(0.0, times), "--width", str(self.width))


def touch_memory() -> None:
    """Use the memory that is free once, in a process of its own, which gives it back."""
    size = memory.available() // 2
    flags = "m.MAP_PRIVATE | m.MAP_ANONYMOUS | m.MAP_POPULATE"
    touch = f"import mmap as m; m.mmap(-1, {size}, {flags})"
    subprocess.run([sys.executable, "-c", touch], check=False)


def measure(folder: Path, trials: int) -> list[Figure]:
    """Return all figures."""
    touch_memory()
    wanted = movable.undisturbed(folder / "undisturbed", *training())
    wanted_of_four = movable.undisturbed(folder / "of-four", *training(), ranks=4)
    numbers = range(trials)
    losses = [loss_s(folder / f"loss-{n}", wanted) for n in numbers]
    small = [image for n in numbers for image in images(folder / f"images-{n}", wanted)]
    large = [one for n in numbers for one in images(folder / f"large-{n}", wanted, BALLAST_MB)]
    moves = [move_s(folder / f"move-{n}", 1, "", wanted) for n in numbers]
    of_two = [move_s(folder / f"two-{n}", 2, "static", wanted_of_four) for n in numbers]
    few, many = ([stand_ins_s(folder / f"{p}-{n}", p) for n in numbers] for p in (4, 64))
    scaled = [b / a for a, b in zip(few, many, strict=True)]
    long = LongSteps.found(folder / "widths")
    ratios = [long.ratio(folder / f"step-{n}", n) for n in numbers]
    lost = "a host is lost: to the next new step, beyond lease and repeated steps"
    return [
        Figure(lost, losses, "s", at_most=5.0),
        Figure(
            "one of 4 hosts without programs is lost: until all go on, with the lease", few, "s"
        ),
        Figure("one of 64", many, "s"),
        Figure("one of 64 / one of 4", scaled, at_most=1.2),
        Figure(f"all stand still for an image of {gb(small):.2f} GB a rank", frozen(small), "s"),
        Figure(f"of {gb(large):.2f} GB", frozen(large), "s"),
        Figure("the difference for each GB", [slope(small, large)], "s", at_most=0.7),
        Figure("a place of one rank is moved: all stand still", moves, "s", at_most=2.5),
        Figure("a place of two, under torchrun", of_two, "s", at_most=5.0),
        Figure("a step of two hosts / of one host over TCP", ratios, digits=3, at_most=1.05),
    ]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    if why := movable.lacks() or fabric.lacks():
        print(f"bench/hosts.py: {why}")
        return 1
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), arguments.trials)
    print_table(figures)
    if arguments.json:
        result_file.write(arguments.json, figures)
    return exit_code("bench/hosts.py", figures)


if __name__ == "__main__":
    sys.exit(main())
