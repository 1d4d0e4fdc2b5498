"""`make test-endings`: a job ends, in each of these ways, with servers as without (`--direct`).

The exit code has to be the same, what is said of the same kind, and nothing may be left behind. The
value of a sum that has failed must not come to the program.
How long it takes is printed and not compared: the machine may be busy.

    make test-endings                          # all of them
    make test-endings ENDINGS="--only late,assert"
    make test-endings ENDINGS="--page docs/endings.md"
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from job import Job, wait_for  # noqa: E402
from ways import WAYS, WRONG_SUM, Way  # noqa: E402

PROGRAM = str(Path(__file__).with_name("program.py"))
START_S, END_S = 120, 180
MODES = {"direct": ("--direct",), "proxied": ()}


@dataclass
class Ending:
    """How one job ended."""

    code: int | None  # None: it did not
    seconds: float  # from the event on
    said: bool  # what it has to
    left: str  # what is left behind
    wrong: str  # the wrong sum that came to the program
    log: str


def torchrun_of(job: Job) -> int:
    """Return the process of torchrun."""
    for pid in job.processes():
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.endswith(b"/torchrun") for word in line[:2]):
            return pid
    raise AssertionError(f"torchrun is not among {job.processes()}")


def event(folder: Path) -> float:
    """Wait until the program has come to the moment; return when that was."""
    wait_for((folder / "event").exists, START_S, "the program comes to the moment")
    return float((folder / "event").read_text())


def end(way: Way, mode: str, folder: Path) -> Ending:
    """Run a job until its end."""
    folder.mkdir(parents=True)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    rank = -1 if way.rank is None else way.rank
    program = [PROGRAM, way.word, str(rank), str(folder)]
    job = Job(
        folder,
        [torchrun, "--standalone", "--nproc-per-node", "2", *program],
        options=("--gpus", "soft:2", *MODES[mode]),
        environment={"OMP_NUM_THREADS": "1"},
    )
    try:
        since = event(folder)
        if way.victim:
            since = time.time()
            victim = job.launcher if way.victim == "launcher" else torchrun_of(job)
            os.kill(victim, way.signal)
        code = ended(job)
        seconds = time.time() - since
        left = remains(job)
    finally:
        job.kill_everything()
    text = job.output() + job.errors()
    said = re.search(way.says, text) is not None
    wrong = re.search(f".*{re.escape(WRONG_SUM)}.*", text)
    return Ending(code, round(seconds, 1), said, left, wrong.group() if wrong else "", str(folder))


def ended(job: Job) -> int | None:
    """Return the exit code, or None."""
    try:
        return job.wait(END_S)
    except subprocess.TimeoutExpired as error:
        print(f"endings: {error}", file=sys.stderr)
        return None


def remains(job: Job) -> str:
    """Return what is left of it after a while."""
    try:
        job.assert_nothing_left()
    except AssertionError as error:
        return str(error).splitlines()[0]
    return ""


def problems(way: Way, found: dict[str, Ending]) -> list[str]:
    """Return what is wrong."""
    wrong = []
    if found["direct"].code != found["proxied"].code:
        wrong.append("other exit codes")
    for mode, one in found.items():
        if one.code is None:
            wrong.append(f"{mode}: has not ended")
        if not one.said:
            wrong.append(f"{mode}: nothing says [{way.says}]")
        if one.left:
            wrong.append(f"{mode}: left {one.left}")
        if one.wrong:
            wrong.append(f"{mode}: {one.wrong}")
    return wrong


HEAD = """\
# How jobs end

From `make test-endings ENDINGS="--page docs/endings.md"`, with PyTorch {torch} under
torchrun, two ranks on soft GPUs.

A job with servers ends as one without them (`--direct`): with the same exit code, and the same kind
of message. Seconds count from the event to the end of `pyft run`, on a busy machine with two cores.
Most of them are torchrun's and PyTorch's own.

| what happens | to | exit code | `--direct` | with servers |
|---|---|---|---|---|
"""


def line(way: Way, found: dict[str, Ending]) -> str:
    """Return a row of the table."""
    to = way.victim or f"rank {way.rank}"
    codes = list(dict.fromkeys(str(found[mode].code) for mode in MODES))
    seconds = " | ".join(f"{found[mode].seconds} s" for mode in MODES)
    what = way.text if way.rank is not None else way.word
    return f"| {what} | {to} | {' or '.join(codes)} | {seconds} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words or names, separated by commas")
    parser.add_argument("--page", type=Path, help="write the table there")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    folder = Path(tempfile.mkdtemp(prefix="endings-"))
    rows, bad = [], 0
    results = {}
    with ThreadPoolExecutor(len(MODES)) as pool:
        for way in WAYS:
            if wanted and not wanted & {way.word, way.name, way.victim}:
                continue
            jobs = {mode: pool.submit(end, way, mode, folder / way.name / mode) for mode in MODES}
            found = {mode: job.result() for mode, job in jobs.items()}
            wrong = problems(way, found)
            bad += bool(wrong)
            rows.append(line(way, found))
            results[way.name] = {mode: asdict(one) for mode, one in found.items()}
            print(rows[-1], "; ".join(wrong), flush=True)
            if not wrong:
                shutil.rmtree(folder / way.name)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if options.page and not bad:
        from importlib.metadata import version

        options.page.write_text(HEAD.format(torch=version("torch")) + "\n".join(rows) + "\n")
    print(f"endings: {len(rows)}, of which {bad} are bad" + (f": {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
