"""`make kill-sweep`: trainings with faults at many places, each of which must change nothing.

A run is good when it ends well, its losses and parameters are, bit for bit, those of the same
training without faults and without protection, no fault has become an error, the verdict is
`exact`, and nothing of it is left behind. One in which a fault has not happened has shown nothing,
and counts as a failure as well: places are those of the undisturbed run. What may not come, a point
within a server or a moment, is tried sooner, and at last replaced by the death of a server at an
entry; its line says instead of what. A bad one keeps its folder, and its line can be repeated with
--repeat. The exit code says whether all were good.

A seed gives each place of a case by itself: the n-th is the same whatever became of those before.

With --noise float atomics give other last digits in each execution, as those of real GPUs do, and
no two runs have equal bits. A run is good then when all its lines are there, no fault has become an
error, and the verdict is `exact` or `equivalent`: what was told wrong would be `corrected`. Where
two undisturbed runs are equal nevertheless, so has to be each disturbed one.

With --rehearse copies, ring and deadlines have the ratios of a large job on eight GPUs beside that,
and all ranks replay, as with stock NCCL (tests/sweep/rehearse.py, docs/research/rehearsal.md). A run
is good then when no fault was given up, no rank replayed more than twice for each of them, and each
loss is near that of the undisturbed run. What differs is named.

    make kill-sweep                                       # random places, one in each case
    make kill-sweep SWEEP="--case gpt --rank 1 --step 2 --stride 5"
    make kill-sweep SWEEP="--random 5 --moments 8"        # servers and agents, whatever they do
    make kill-sweep SWEEP="--random 10 --seed 7 --kinds server-kill,sticky,gpu-lost --per-run 3"
    make kill-sweep SWEEP="--random 2 --noise 7"
    make kill-sweep SWEEP="--total 100"                   # over all cases, two or three in each
    make kill-sweep SWEEP="--rehearse 8b --random 10"     # or 70b; --case moe-8 with cores for that
"""

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
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import rehearse  # noqa: E402
from cases import CASES, REHEARSED, Case  # noqa: E402
from job import Job  # noqa: E402 - what the tests use as well
from places import SETTINGS, Dice, Place, entries_of_steps, every, shared_out  # noqa: E402
from recovery_run import command, lines  # noqa: E402

from pyft.agent.job.gpus import MAX_DEVICES  # noqa: E402
from pyft.errors import NOT_INJECTED  # noqa: E402

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


class Sweep:
    """All runs of one case."""

    def __init__(self, name: str, case: Case, folder: Path, args: argparse.Namespace) -> None:
        self.name, self.case, self.folder, self.args = name, case, folder, args
        self.number = 0
        self.bits = True  # results have to be equal bit for bit
        self.ratios: Mapping[str, str] = {}  # settings of a rehearsal
        self.entries: Mapping[int, list[int]] = {}
        self.spares = min(args.spares, MAX_DEVICES - case.ranks)
        self.kinds = [kind for kind in args.kinds.split(",") if self.spares or kind != "gpu-lost"]
        arguments = tuple(word.format(steps=args.steps) for word in case.arguments)
        self.argv = command(case.program, case.ranks, arguments)

    def _run(
        self,
        options: tuple[str, ...],
        settings: Mapping[str, str],
        kills: tuple[tuple[float, str], ...] = (),
    ) -> tuple[Job, str]:
        """Return the job, and what is wrong with how it ended."""
        self.number += 1
        folder = self.folder / f"{self.name}-{self.number}"
        folder.mkdir(parents=True)
        report = ("--report", str(folder / "report.json"))
        environment = {"PYFT_HANG_S": HANG_S, **self.case.settings, **settings}
        if self.args.noise:
            environment["SOFTGPU_NOISE"] = self.args.noise
            options = (*options, "--divergence", "report")
        gpus = ("--gpus", f"soft:{self.case.ranks}")
        job = Job(folder, self.argv, options=(*gpus, *options, *report), environment=environment)
        try:
            if kills:
                job.wait_attached()
            for seconds, who in kills:
                time.sleep(seconds)
                kill(job, who)
            code = job.wait(SECONDS)
            if code not in (0, NOT_INJECTED):
                return job, f"exit code [{code}]: {last_line(job.errors())}"
            job.assert_nothing_left()
        except Exception as error:  # the sweep goes on
            return job, f"{type(error).__name__}: {error}".splitlines()[0]
        finally:
            job.kill_everything()
        return job, ""

    def undisturbed(self) -> None:
        """Learn what is right, how many entries the steps have, and what a rehearsal needs."""
        job, complaint = self._run(("--protect", "none"), {})
        self.wanted = lines(job)
        modes = rehearse.MODES if self.args.rehearse else {}
        again, also = self._run((), modes)
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

    def disturbed(self, place: Place) -> Outcome:
        """Run with faults and compare."""
        words = ["--spares", str(self.spares), "--protect", self.args.protect, *place.options]
        for fault in place.faults:
            words += ["--inject", fault]
        began = time.monotonic()
        settings = {**self.ratios, **place.settings}
        job, complaint = self._run(tuple(words), settings, place.kills)
        recovery: dict = {}
        report = job.log_dir.parent / "report.json"
        if report.exists() and (text := report.read_text()):  # empty: it did not end
            recovery = json.loads(text)["recovery"]
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
    """End the agent or the server of a rank, if it is there."""
    with contextlib.suppress(OSError, ValueError, KeyError):  # no channel yet, or dead already
        meta = job.meta()
        servers = {f"server {live['rank']}": live["server_pid"] for live in meta["live"]}
        os.kill((servers | {"agent": meta["agent_pid"]})[who], signal.SIGKILL)


def repeated(text: str) -> Place:
    """Read a place as the table prints it."""
    words = shlex.split(text)
    faults = tuple(b for a, b in zip(words, words[1:], strict=False) if a == "--inject")
    settings = dict(w.split("=", 1) for w in words if w.startswith("PYFT_"))
    rest = [w for w in words if not w.startswith("PYFT_") and w != "--inject" and w not in faults]
    return Place(faults, settings, tuple(rest))


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="faults at many places of many trainings")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="default: all")
    parser.add_argument("--rank", type=int, help="whose servers; default: any, or each in turn")
    parser.add_argument("--steps", type=int, default=0, help="default: 4, in a rehearsal 8")
    parser.add_argument("--stride", type=int, default=0, help="kill at each K-th entry of --step")
    parser.add_argument("--first", type=int, default=1, help="first entry of --stride")
    parser.add_argument("--step", type=int, default=2, help="the step, with --stride")
    parser.add_argument("--random", type=int, default=1, help="so many random places per case")
    parser.add_argument(
        "--total", type=int, default=0, help="instead: so many random places over all the cases"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--kinds", default="server-kill", help="of random faults, by commas")
    parser.add_argument("--per-run", type=int, default=1, help="at most so many faults in a run")
    parser.add_argument(
        "--moments", type=int, default=0, help="instead: so many deaths at random times"
    )
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--protect", default="snapshot", choices=("snapshot", "jit"))
    parser.add_argument("--noise", default="", help="a seed: see above")
    parser.add_argument("--rehearse", default="", choices=["", *rehearse.LARGE], help="see above")
    parser.add_argument("--repeat", default="", help="a line of the table")
    parser.add_argument("--folder", type=Path, help="where bad runs are kept; default: a new one")
    args = parser.parse_args(words)
    if args.total and (args.stride or args.repeat):
        parser.error("--total is of random places: not with --stride or --repeat")
    args.steps = args.steps or (8 if args.rehearse else 4)
    if args.rehearse:
        args.noise = args.noise or "7"
        args.case = args.case or list(REHEARSED)
    return args


def last_line(text: str) -> str:
    """Return what was said last, empty if nothing was."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def verdict(place: Place, outcome: Outcome) -> str:
    """Say what came of a place, as the table prints it behind that."""
    if outcome.complaint:
        said = f"BAD {outcome.complaint}: {outcome.folder}"
    else:
        equal = outcome.recovery.get("verdict") or "equal"
        equal = "equal" if equal == "exact" else equal
        said = f"MISSED {outcome.missed}: {outcome.folder}" if outcome.missed else equal
    return f"{said} (instead of [{place.replaces}], which did not come)" if place.replaces else said


def main() -> int:
    args = parse()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kill-sweep-"))
    runs = bad = faults = missed = 0
    cases = args.case or list(CASES)
    counts = shared_out(args.total, cases) if args.total else dict.fromkeys(cases, args.random)
    seen: list[tuple[Place, Mapping]] = []
    for name, count in counts.items():
        if not count:
            continue
        sweep = Sweep(name, CASES[name], folder, args)
        sweep.undisturbed()
        for place, outcome in (found for p in sweep.places(count) for found in sweep.outcomes(p)):
            seen.append((place, outcome.recovery))
            runs, faults, bad = runs + 1, faults + outcome.faults, bad + bool(outcome.complaint)
            missed += bool(outcome.missed and not outcome.complaint)
            print(
                f"{name:<16} {outcome.seconds:5.1f} s {outcome.faults:3} faults  {place}  "
                f"{verdict(place, outcome)}",
                flush=True,
            )
        shutil.rmtree(folder / f"{name}-1", ignore_errors=True)
        shutil.rmtree(folder / f"{name}-2", ignore_errors=True)
    print(f"{runs} runs with {faults} faults, {bad} of them bad; {missed} have shown nothing")
    if args.rehearse:
        print(rehearse.summary(seen))
    return bool(bad or missed)


if __name__ == "__main__":
    sys.exit(main())
