"""One case of the sweep: what its training gives undisturbed, and what comes of it when disturbed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import rehearse  # noqa: E402
from cases import Case  # noqa: E402
from job import Job  # noqa: E402 - what the tests use as well
from places import SETTINGS, Dice, Place, entries_of_steps, every  # noqa: E402
from recovery_run import command, lines  # noqa: E402

from pyft.agent.job.gpus import MAX_DEVICES  # noqa: E402
from pyft.agent.operators import orders  # noqa: E402
from pyft.errors import NOT_INJECTED, PyftError  # noqa: E402

SECONDS = 240  # that a run may take, several times what it takes on two busy cores
HANG_S = "5"


@dataclass
class Outcome:
    """What came of one run."""

    complaint: str
    missed: str  # which fault has not happened, or that none has
    faults: int
    seconds: float
    folder: Path
    recovery: Mapping = field(default_factory=dict)  # of the report


@dataclass
class Trial:
    """How a run ended, whatever was expected."""

    job: Job
    code: int | None  # None: it did not
    trouble: str = ""  # it was not there in time, or something is left of it


class Sweep:
    """All runs of one case."""

    def __init__(self, name: str, case: Case, folder: Path, args: argparse.Namespace) -> None:
        self.name, self.case, self.folder, self.args = name, case, folder, args
        self.number, self.seconds = 0, SECONDS
        self.bits = True  # results have to be equal bit for bit
        self.ratios: Mapping[str, str] = {}  # settings of a rehearsal
        self.entries: Mapping[int, list[int]] = {}
        self.spares = min(args.spares, MAX_DEVICES - case.ranks)
        self.kinds = [kind for kind in args.kinds.split(",") if self.spares or kind != "gpu-lost"]
        arguments = tuple(word.format(steps=args.steps) for word in case.arguments)
        self.argv = command(case.program, case.ranks, arguments)

    def trial(self, place: Place, options: tuple[str, ...] = ()) -> Trial:
        """Run once, and say how it ended; nothing of it runs any more then."""
        self.number += 1
        folder = self.folder / f"{self.name}-{self.number}"
        folder.mkdir(parents=True)
        report = ("--report", str(folder / "report.json"))
        environment = {"PYFT_HANG_S": HANG_S, **self.case.settings, **self.ratios, **place.settings}
        if self.args.noise:
            environment["SOFTGPU_NOISE"] = self.args.noise
            options = (*options, "--divergence", "report")
        for fault in place.faults:
            options = (*options, "--inject", fault)
        flags = ("--gpus", f"soft:{self.case.ranks}", *options, *place.options, *report)
        more = {"wrapper": place.wrapper, "may_miss": True}  # the report says so: `missing`
        job = Job(folder, self.argv, options=flags, environment=environment, **more)
        code = None
        try:
            if place.kills:
                job.wait_attached()
            for seconds, who in place.kills:
                time.sleep(seconds)
                if job.over():
                    break
                kill(job, who)
            code = job.wait(self.seconds)
            job.assert_nothing_left()
        except Exception as error:  # the sweep goes on
            return Trial(job, code, f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            job.kill_everything()
        return Trial(job, code)

    def _run(self, place: Place, *options: str) -> tuple[Job, str]:
        """Return the job, and what is wrong with how it ended."""
        trial = self.trial(place, options)
        if trial.code not in (0, NOT_INJECTED) and trial.code is not None:
            return trial.job, f"exit code [{trial.code}]: {last_line(trial.job.errors())}"
        return trial.job, trial.trouble

    def protected(self) -> tuple[str, ...]:
        """Return the options of a disturbed run."""
        return ("--spares", str(self.spares), "--protect", self.args.protect)

    def undisturbed(self) -> None:
        """Learn what is right, how many entries the steps have, and what a rehearsal needs."""
        job, complaint = self._run(Place(()), "--protect", "none")
        self.wanted = lines(job)
        modes = rehearse.MODES if self.args.rehearse else {}
        again, also = self._run(Place((), modes))
        self.bits = not self.args.noise or lines(again) == self.wanted
        differs = self._differs(lines(again))
        if complaint or also or len(self.wanted) <= self.case.ranks or differs:
            sys.exit(f"kill-sweep: [{self.name}] fails without faults: {complaint or also}")
        meta = json.loads((again.log_dir / "meta.json").read_text())
        self.entries = {
            channel["rank"]: entries_of_steps(again.log_dir / channel["file"])
            for channel in meta["channels"]
        }
        if self.args.rehearse:
            small = rehearse.measure(meta["channels"], again.log_dir)
            self.ratios = rehearse.settings(rehearse.LARGE[self.args.rehearse], small)
            said = " ".join(f"{name}={value}" for name, value in self.ratios.items())
            print(f"{self.name}: {rehearse.in_words(small, self.ratios)}; {said}", flush=True)

    def known(self) -> dict[str, Any]:
        """Return what has been learned, as JSON can have it."""
        return {"wanted": self.wanted, "entries": list(self.entries.items())}

    def know(self, known: Mapping[str, Any]) -> None:
        """Take what an earlier one has learned."""
        self.wanted, self.entries = known["wanted"], {rank: n for rank, n in known["entries"]}

    def disturbed(self, place: Place) -> Outcome:
        """Run with faults and compare."""
        began = time.monotonic()
        job, complaint = self._run(place, *self.protected())
        recovery = recovery_of(job)
        if not complaint:
            complaint = self._difference(job, recovery)
        if not complaint:
            complaint = unasked(place, recovery)
        if not complaint and self.args.rehearse:
            complaint = rehearse.too_often(place, recovery)
        missed = missing(recovery)
        if not complaint and not missed:
            shutil.rmtree(job.log_dir.parent)
        seconds = time.monotonic() - began
        faults = len(recovery.get("faults", ()))
        return Outcome(complaint, missed, faults, seconds, job.log_dir.parent, recovery)

    def outcomes(self, place: Place) -> Iterator[tuple[Place, Outcome]]:
        """Disturb a run, and again sooner as long as nothing has happened and that is possible."""
        while True:
            outcome = self.disturbed(place)
            sooner = place.sooner() if outcome.missed and not outcome.complaint else None
            if sooner is None:
                yield place, outcome
                return
            shutil.rmtree(outcome.folder)
            place = sooner

    def _differs(self, got: list[str]) -> bool:
        """Say whether results are wrong; where noise tells they can only be near."""
        if self.bits:
            return got != self.wanted
        far = self.args.rehearse and not rehearse.near(got, self.wanted)
        return len(got) != len(self.wanted) or bool(far)

    def _difference(self, job: Job, recovery: Mapping) -> str:
        if self._differs(lines(job)):
            return "losses or parameters differ"
        if recovery["given_up"]:
            return f"given up [{recovery['given_up']}]"
        # A program that ends while a server is replaced needs nothing of it any more.
        last = {fault["rank"]: fault["outcome"] for fault in recovery["faults"]}
        if not set(last.values()) <= {"recovered", "client ended"}:
            return f"outcomes [{last}]"
        right = ("exact", "equivalent") if self.args.noise else ("exact",)
        if recovery["recovered"] and recovery["verdict"] not in right:
            return f"verdict [{recovery['verdict']}]"
        drifts = self.case.drifts or self.args.noise
        if not drifts and any(fault["fault"] == "replica" for fault in recovery["faults"]):
            return "replicas seemed to differ"
        return ""

    def places(self, random_ones: int) -> Iterator[Place]:
        """Yield what is asked for, and so many where it is random places."""
        args = self.args
        if args.repeat:
            yield repeated(args.repeat)
        elif args.stride:
            for rank in range(self.case.ranks) if args.rank is None else [args.rank]:
                steps = self.entries[rank]
                yield from every(steps, rank, args.step, args.stride, args.per_run, args.first)
        else:
            ranks = self.entries if args.rank is None else {args.rank: self.entries[args.rank]}
            for number in range(random_ones):
                dice = random.Random(f"{args.seed} {self.name} {number}")
                choice = ({},) if args.rehearse else SETTINGS
                drawn = Dice(ranks, self.kinds, args.per_run, dice, choice)
                yield drawn.moments(args.moments) if args.moments else drawn.place()


def recovery_of(job: Job) -> dict:
    """Return what a job's report says of recoveries; nothing, if it did not come to one."""
    report = job.log_dir.parent / "report.json"
    text = report.read_text() if report.exists() else ""
    return json.loads(text)["recovery"] if text else {}


def missing(recovery: Mapping) -> str:
    """Say what has not happened of what was asked for; a run without any fault shows nothing."""
    if missed := recovery.get("not_injected"):
        return f"[{missed[0]['fault']}] did not happen: {missed[0]['why']}"
    happened = recovery.get("faults") or recovery.get("agent_restarts")
    return "" if happened else "no fault has happened"


def unasked(place: Place, recovery: Mapping) -> str:
    """Say so if the agent has ended, which is a fault that shows something only where asked for."""
    asked = sum(who == "agent" for _, who in place.kills)
    restarts = recovery.get("agent_restarts", 0)
    return f"the agent was restarted [{restarts}] times" if restarts > asked else ""


def kill(job: Job, who: str) -> None:
    """End a process of a job, if it is there, or give it a GPU back: `spare 2`."""
    with contextlib.suppress(OSError, ValueError, KeyError, PyftError):  # not there yet, or dead
        if who.startswith("spare "):
            orders.give(job.meta(), "spare", gpu=int(who.split()[1]))
            return
        meta = job.meta()
        pids = {f"server {live['rank']}": live["server_pid"] for live in meta["live"]}
        pids |= {f"client {live['rank']}": live["pid"] for live in meta["live"]}
        pids |= {role: meta[f"{role}_pid"] for role in ("agent", "supervisor")}
        os.kill((pids | {"launcher": job.launcher})[who], signal.SIGKILL)


def repeated(text: str) -> Place:
    """Read a place as the table prints it."""
    words = shlex.split(text)
    faults = tuple(b for a, b in zip(words, words[1:], strict=False) if a == "--inject")
    settings = dict(w.split("=", 1) for w in words if w.startswith("PYFT_"))
    rest = [w for w in words if not w.startswith("PYFT_") and w != "--inject" and w not in faults]
    return Place(faults, settings, tuple(rest))


def last_line(text: str) -> str:
    """Return what was said last, empty if nothing was."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
