"""A campaign of silent faults: what becomes of them, and which check sees them.

    make dmr-campaign                       # 300 trials; DMR="--trials 3000 --seed 2 --dtype bf16"

Each trial is one step of a small GPT with activation checkpointing (dmr_trials.py) in which one
fault of the model happens, at a launch and place that the seed draws. It is classified by bits
against the undisturbed step. What `replica comparison` sees is what the other replica, which has
had the same gradients, does not have; what `checkpoint` sees are the mismatches that servers with
--dmr checkpoint report, in another run of the same faults, and `full` likewise; what `audit` sees are the ranks that
--dmr audit finds wrong, in a third one. A trial that crashes is not run there: it is no silent
fault. The file is written after each batch: started again with the same options,
the campaign goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dmr_file
from dmr_table import MODES, markdown, plot

ROOT = Path(__file__).resolve().parent.parent
PYFT = [sys.executable, "-I", "-m", "pyft"]  # not the tree, but what is installed
MODELS = {
    "single": "upset,model=single",
    "double": "upset,model=double",
    "word": "upset,model=word",
    "stuck": "stuck",
    "result": "flip,result=random",
}
BATCH = 25
# How far a loss may be from the undisturbed one until it counts as harm, relative to it.
HARM = 1e-4
HIT = re.compile(r"softgpu: device \[0\]: (.*) at launch \[(\d+)\], of \[(.*?)\]$", re.MULTILINE)
AUDITED = re.compile(r"rank \[0\] was wrong, says its audit: before cut \[(\d+)\]")
PER_TRIAL = 5  # steps of an optimizer, by the horizon of dmr_trials.py
MISMATCH = re.compile(r"mismatch behind cut .* at entry \[(\d+)\]")


def fault(args: argparse.Namespace, trial: int, window: int) -> tuple[str, int]:
    """Return what happens in a trial, without its launch, and the launch of the window."""
    drawn = random.Random(f"{args.seed} {trial}")
    kind = args.model if args.model != "mixed" else drawn.choice(list(MODELS))
    launch = drawn.randrange(window)
    if kind == "stuck":
        unit = drawn.choice(("alu", "fma", "mufu", "lsu"))
        where = f"lane={drawn.randrange(32)},bit={drawn.randrange(32)},to={drawn.randrange(2)}"
        return f"stuck,sm={drawn.randrange(8)},unit={unit},{where},times=1", launch
    return f"{MODELS[kind]},seed={drawn.randrange(1 << 30)}", launch


HOW = {
    "direct": ["--direct"],
    "checkpoint": ["--dmr", "checkpoint"],
    "full": ["--dmr", "full"],
    "audit": ["--dmr", "audit", "--spares", "2"],
}


def run(args: argparse.Namespace, faults: str, trials: int, mode: str) -> tuple[list, str, str]:
    """Run trials; return their lines, what stderr says, and why it ended early if it did."""
    how = HOW[mode]
    program = [sys.executable, str(ROOT / "bench" / "dmr_trials.py"), "--trials", str(trials)]
    program += ["--recompute", "--dropout", str(args.dropout), "--dtype", args.dtype]
    environment = os.environ | {"SOFTGPU_FAULT": faults, "PYFT_DMR_ACTION": "report"}
    if mode == "audit":  # behind the step of each trial that may have a fault
        environment |= {"PYFT_CUT_EVERY": str(PER_TRIAL), "PYFT_AUDIT_WAIT_S": "120"}
    line = [*PYFT, "run", "--gpus", "soft:1", "--log-dir", str(args.log), *how, "--", *program]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, env=environment, check=False, timeout=args.timeout
        )
        out, error, why = done.stdout, done.stderr, "" if done.returncode == 0 else "crash"
    except subprocess.TimeoutExpired as late:
        out, error = ((part or b"").decode() for part in (late.stdout, late.stderr))
        why = "hang"
    lines = [json.loads(text) for text in out.splitlines() if text.startswith("{")]
    return lines, error, why


class Campaign:
    """All trials so far, in a file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        same = {name: getattr(args, name) for name in ("seed", "model", "dtype", "dropout")}
        self.found = dmr_file.load(args.json, same)
        golden, _, why = run(args, "", 2, "direct")
        if why or golden[1]["state"] != golden[2]["state"]:
            raise SystemExit(f"undisturbed steps are not all alike: {golden} {why}")
        self.golden = golden[1]
        self.ready = golden[0]["ready"]
        self.window = golden[1]["end"] - golden[1]["begin"]
        self.period = golden[2]["begin"] - golden[1]["begin"]
        dmr_file.measured(args.json, self.found, self.window, self.period)

    def faults(self, trials: list[int]) -> str:
        """Return what SOFTGPU_FAULT says for trials that run one after the other."""
        texts = []
        for place, trial in enumerate(trials):
            what, launch = fault(self.args, trial, self.window)
            texts.append(f"{what},device=0,at={self.ready + place * self.period + launch + 1}")
        return ";".join(texts)

    def hits(self, error: str) -> dict[int, dict[str, Any]]:
        """Return what was hit, by place of the trial among those that ran: one thing, in time."""
        hits: dict[int, dict[str, Any]] = {}
        twice = set()
        for what, launch, kernel in HIT.findall(error):
            place, offset = divmod(int(launch) - self.ready - 1, self.period)
            if place in hits or offset >= self.window:  # a fault that had to wait too long
                twice.add(place)
            hits[place] = {"hit": what, "kernel": kernel, "launch": offset}
        return {place: hit for place, hit in hits.items() if place not in twice}

    def outcome(self, line: dict[str, Any]) -> str:
        """Classify the end of a step by its bits, and by the losses that follow."""
        if line["state"] == self.golden["state"] and line["loss"] == self.golden["loss"]:
            return "masked"
        right = [float.fromhex(self.golden["loss"]), *self.golden["later"]]
        now = [float.fromhex(line["loss"]), *line["later"]]
        far = any(
            not math.isfinite(a) or abs(a - b) > HARM * abs(b)
            for a, b in zip(now, right, strict=True)
        )
        return "harmful" if far else "benign"

    def direct(self, trials: list[int]) -> None:
        """Run trials without servers, whatever they end."""
        while trials:
            lines, error, why = run(self.args, self.faults(trials), len(trials), "direct")
            lines, hits = lines[1:], self.hits(error)
            for place, trial in enumerate(trials[: len(lines) + bool(why)]):
                what, launch = fault(self.args, trial, self.window)
                row: dict[str, Any] = {"trial": trial, "fault": what, "at": launch}
                row |= hits.get(place, {})
                if place == len(lines):
                    row["outcome"] = why
                elif place not in hits:
                    row["outcome"] = "not counted"
                else:
                    row["outcome"] = self.outcome(lines[place])
                    row["bits"] = lines[place]["state"] != self.golden["state"]
                    row["replica"] = lines[place]["state"] != lines[place]["replica"]
                self.found["trials"].append(row)
            trials = trials[len(lines) + bool(why) :]
            dmr_file.save(self.args.json, self.found)

    def with_servers(self, rows: list[dict[str, Any]], mode: str) -> None:
        """Run the silent ones again with --dmr checkpoint, full, or audit."""
        trials = [row["trial"] for row in rows]
        lines, error, why = run(self.args, self.faults(trials), len(trials), mode)
        if why or len(lines) < 2:
            raise SystemExit(f"trials {trials} have ended with servers: {why} {error[-2000:]}")
        hits = self.hits(error)
        seen = self.audited(error, lines) if mode == "audit" else self.seen(error)
        for place, row in enumerate(rows[: len(lines) - 1]):
            if hits.get(place, {}).get("hit") != row["hit"]:
                row[mode] = None  # another place was hit: it is not compared
                continue
            row[mode] = place in seen
            row["same_bits"] = (lines[place + 1]["state"] != self.golden["state"]) == row["bits"]
        dmr_file.save(self.args.json, self.found)

    def audited(self, error: str, lines: list[dict[str, Any]]) -> set[int]:
        """Return the places of trials behind whose step an audit has found the rank wrong."""
        first = lines[0]["steps"] + 1
        return {(int(cut) - first) // PER_TRIAL for cut in AUDITED.findall(error)}

    def seen(self, error: str) -> set[int]:
        """Return the places of trials whose fault a mismatch has shown.

        Both are lines of one server's stderr: a mismatch belongs to the last fault before it.
        """
        seen: set[int] = set()
        place = -1
        for line in error.splitlines():
            if found := HIT.search(line):
                place = (int(found[2]) - self.ready - 1) // self.period
            elif MISMATCH.search(line):
                seen.add(place)
        return seen

    def run(self) -> None:
        """Run what is missing."""
        done = {row["trial"] for row in self.found["trials"]}
        left = [trial for trial in range(self.args.trials) if trial not in done]
        while left:
            self.direct(left[:BATCH])
            left = left[BATCH:]
            print(f"{self.args.trials - len(left)} trials", flush=True)
        silent = ("masked", "benign", "harmful")
        rows = [row for row in self.found["trials"] if row["outcome"] in silent]
        for mode in () if self.args.without_servers else self.args.modes:
            todo = [row for row in rows if mode not in row and "replica" in row]
            while todo:
                self.with_servers(todo[:BATCH], mode)
                todo = [row for row in todo if mode not in row]
                print(f"{len(todo)} left to run with --dmr {mode}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", choices=[*MODELS, "mixed"], default="mixed")
    parser.add_argument("--dtype", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "dmr-campaign.json")
    parser.add_argument("--without-servers", action="store_true", help="not the last columns")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES, help="the last columns")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a batch")
    args = parser.parse_args()
    args.log = args.json.with_suffix(".job")
    campaign = Campaign(args)
    campaign.run()
    args.json.with_suffix(".md").write_text(markdown(campaign.found))
    args.json.with_suffix(".svg").write_text(plot(campaign.found))
    print(markdown(campaign.found))


if __name__ == "__main__":
    main()
