"""`make soak HOURS=1`: trainings and one long job, disturbed by everything, until the time is over.

Each run is a case of the sweep (tests/sweep/cases.py) with what disturbances.py gives its number: faults of
every kind, deaths of every process, spares given, limits near the edge, load from outside. With
CRIU some are movable jobs whose clients are killed (tests/sweep/images.py). Beside them one job
runs all the time, is disturbed by orders, and its growth is measured (endure.py).

A run is judged by soak_verdicts.py. Equal bits are good, and so is an end that has a reason where something
died that a job needs. Exits with 1 where bits were wrong, or something was bad; its folder is kept.

    make soak HOURS=0.1
    make soak SOAK="--seed 7 --first 12 --runs 1"   # the same run again

What was seen is in build/soak/soak.json, whole at any moment, and as a page beside it
(tools/gen/soak_page.py). Each stretch is added to those before. A soak that is killed leaves no
process, and no folder but that one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "sweep", "nodes")]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import images  # noqa: E402
import movable  # noqa: E402
from case_runs import Sweep, Trial, recovery_of  # noqa: E402
from cases import CASES  # noqa: E402
from disturbances import Disturbance, Draw  # noqa: E402
from endure import Endurance  # noqa: E402
from ledger import Ledger, classes  # noqa: E402
from limits import ADDRESSES, DESCRIPTORS, Group, addresses, descriptors, widest  # noqa: E402
from load import loaded  # noqa: E402
from places import Place  # noqa: E402
from recovery_run import lines  # noqa: E402
from run import parse as sweep_options  # noqa: E402
from soak_page import page  # noqa: E402
from soak_verdicts import BAD, EQUAL, FAILURES, Seen, Verdict, judge  # noqa: E402

FOLDER = ROOT / "build" / "soak"
MARK = "SOAK_MARK"
SPARES, STEPS = 3, 4
RUN_S = 75  # that one may take, and four times that on a busy machine
MOVABLE = 0.06  # of all runs
MOVABLE_STEPS = ("--steps", "60")
POOL, PER_POOL = 3, 12
MEASURED = ("gpt-1", "cnn-1", "gpt")  # cases with limits of addresses and memory


class Soak:
    """One stretch."""

    def __init__(self, args: argparse.Namespace, work: Path, group: Group) -> None:
        self.args, self.work, self.group = args, work, group
        self.sweeps: dict[str, Sweep] = {}
        self.needs: dict[str, tuple[int, int]] = {}  # addresses and memory of a case
        self.ledger = Ledger(args.folder / "soak.json")
        self.bad = 0
        self.movable: set[str] = set()  # lines of a movable job without a fault

    def once(self, number: int) -> dict[str, Any]:
        """Do the run of a number; return what the ledger has of it."""
        dice = random.Random(f"{self.args.seed} {number}")
        began = time.monotonic()
        if dice.random() < MOVABLE and not movable.lacks():
            found = self._movable(number)
        else:
            found = self._case(dice, number)
        seconds = round(time.monotonic() - began, 1)
        return {"number": number, "seconds": seconds, "load": round(os.getloadavg()[0], 1)} | found

    def _movable(self, number: int) -> dict[str, Any]:
        """Kill clients of a job that has images."""
        if not self.movable:
            self.movable = movable.undisturbed(self.work / "movable", *MOVABLE_STEPS)
        folder = self.work / f"movable-{number}"
        wrong = images.guarded(lambda: images.run(folder, number, self.args.seed, self.movable))
        verdict = Verdict(BAD, wrong[:300]) if wrong else Verdict(EQUAL)
        kinds = ["client killed, with images"] + ["agent killed"] * (number % 3 == 2)
        what = images.PLACES[number % len(images.PLACES)]
        self._keep(folder, number, verdict)
        return self._row("movable", "images", kinds, what, verdict, {})

    def _pool(self, number: int) -> list[str]:
        """Return some cases for some runs in a row: each costs two runs to learn."""
        pool = random.Random(f"{self.args.seed} cases {number // PER_POOL}")
        return self.args.case or pool.sample(list(CASES), POOL)

    def _case(self, dice: random.Random, number: int) -> dict[str, Any]:
        name = dice.choice(self._pool(number))
        sweep = self._sweep(name)
        given = Draw(sweep.entries, sweep.spares).draw(dice)
        if given.limit and name not in MEASURED and DESCRIPTORS not in given.limit:
            sweep = self._sweep(name := MEASURED[dice.randrange(len(MEASURED))])
            given = Draw(sweep.entries, sweep.spares).limit(dice, given.limit)
        place = given.place
        if given.limit:
            place = self._limited(sweep, given)
        with loaded(given.load, self.work):
            trial = sweep.trial(place, sweep.protected())
        recovery = recovery_of(trial.job)
        verdict = judge(given, seen(trial, recovery), sweep.wanted)
        self._keep(trial.job.log_dir.parent, number, verdict)
        return self._row(name, given.family, given.kinds, str(given), verdict, classes(recovery))

    @staticmethod
    def _row(
        case: str, family: str, kinds: Any, what: str, verdict: Verdict, found: dict
    ) -> dict[str, Any]:
        row = {"case": case, "family": family, "kinds": list(kinds), "what": what}
        return row | {"outcome": verdict.outcome, "reason": verdict.reason, "classes": found}

    def _keep(self, folder: Path, number: int, verdict: Verdict) -> None:
        """Remove a run's folder, or keep it if something may not be."""
        if verdict.outcome in FAILURES:
            kept = self.args.folder / "bad" / f"{self.args.seed}-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("images"))
        shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self, name: str) -> Sweep:
        """Return a case that knows what is right; it is learned once for each build."""
        if name not in self.sweeps:
            options = sweep_options(["--spares", str(SPARES), "--steps", str(STEPS)])
            sweep = Sweep(name, CASES[name], self.work, options)
            sweep.seconds = RUN_S
            known = self.args.folder / f"undisturbed-{build()}.json"
            all_known = json.loads(known.read_text()) if known.exists() else {}
            if name in all_known:
                sweep.know(all_known[name])
            else:
                sweep.undisturbed()
                known.write_text(json.dumps(all_known | {name: sweep.known()}))
            self.sweeps[name] = sweep
        return self.sweeps[name]

    def _limited(self, sweep: Sweep, given: Disturbance) -> Place:
        """Return the place under its limit, which is a part of what the case needs undisturbed."""
        kind, _, edge = given.limit.partition(" ")
        if kind == DESCRIPTORS:
            return replace(given.place, wrapper=descriptors(int(edge)))
        if sweep.name not in self.needs:
            mark = f"SOAK_RUN={uuid.uuid4().hex}"
            free = self.group.wrapper(-1) if self.group.there else ()
            with widest(mark) as most:
                place = Place((), dict([mark.split("=")]), wrapper=free)
                sweep.trial(place, sweep.protected())
            self.needs[sweep.name] = (most[0], self.group.peak() if self.group.there else 0)
        if kind == ADDRESSES:
            most = int(float(edge) * self.needs[sweep.name][0])
            return replace(given.place, wrapper=addresses(most))
        if not self.group.there:
            return given.place
        most = int(float(edge) * self.needs[sweep.name][1])
        return replace(given.place, wrapper=self.group.wrapper(most))

    def stretch(self) -> int:
        """Run until the time is over; return how many runs may not be as they were."""
        until = time.monotonic() + 3600 * self.args.hours
        self.ledger.begin(self.args.seed, memory_group=self.group.there, images=not movable.lacks())
        long = Endurance(
            self.work / "endurance", 3600 * self.args.hours, self.args.seed, self.ledger.endurance
        )
        if not self.args.no_long:
            long.start()
        try:
            for number in itertools.count(self.args.first):
                if time.monotonic() > until or number - self.args.first == self.args.runs:
                    break
                self._told(self.once(number))
            if not self.args.no_long:
                long.join()
        finally:
            long.stop()
            if long.is_alive():
                long.join()
        if long.complaint:
            print(f"BAD  the long job: {long.complaint}", flush=True)
        self.ledger.end()
        return self.bad + bool(long.complaint)

    def _told(self, row: dict[str, Any]) -> None:
        self.ledger.add(row)
        self.bad += row["outcome"] in FAILURES
        reason = f": {row['reason']}" if row["reason"] else ""
        words = (f"{row['number']:4} {row['case']:<18} {row['seconds']:6.1f} s", row["what"])
        print(*words, f"-> {row['outcome']}{reason}", sep="  ", flush=True)
        (self.args.folder / "soak.md").write_text(page(self.ledger.stretches))


def seen(trial: Trial, recovery: dict) -> Seen:
    """Return what is judged of a run."""
    return Seen(trial.code, trial.trouble, lines(trial.job), trial.job.errors(), recovery)


def build() -> str:
    """Return what changes with each build: results of an older one say nothing."""
    installed = Path(sys.prefix) / "installed"
    return str(installed.stat().st_mtime_ns if installed.exists() else 0)


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[tuple[Path, Group]]:
    """Give a folder for all that runs, and a group; nothing of it stays, whatever happens."""
    work, group = folder / "work", Group()
    os.environ[MARK] = uuid.uuid4().hex
    word = f"{MARK}={os.environ[MARK]}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    line = [sys.executable, str(Path(__file__).with_name("guard.py"))]
    with subprocess.Popen(
        [*line, word, str(work), str(group.folder)], stdin=subprocess.PIPE, start_new_session=True
    ) as guard:
        try:
            yield work, group
        finally:  # when this closes its standard input it clears
            guard.communicate()


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", default="", help="default: a new one")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--runs", type=int, default=-1, help="at most so many")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="default: all")
    parser.add_argument("--no-long", action="store_true", help="without the long job")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args(words)
    args.seed = args.seed or str(random.randrange(10**6))
    args.folder = args.folder.resolve()
    return args


def main() -> int:
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with guarded(args.folder) as (work, group):
        print(f"seed {args.seed}; see [{args.folder / 'soak.md'}]", flush=True)
        return min(Soak(args, work, group).stretch(), 1)


if __name__ == "__main__":
    sys.exit(main())
