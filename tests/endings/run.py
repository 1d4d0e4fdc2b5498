"""`make test-endings`: a job ends, in each of these ways, with servers as without (`--direct`).

The exit code, the rank that fails first, and the messages have to be the same, the time within a few
seconds (judge.py). Nothing may be left behind. The value of a sum that has failed must not come to
the program. A difference counts unless it is known (ways.py); one that is known has to be there.

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
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from job import Job, wait_for  # noqa: E402
from judge import Ending, busy_differences, first, unexplained  # noqa: E402
from page import line, page  # noqa: E402
from ways import WAYS, WRONG_SUM, Way  # noqa: E402

PROGRAM = str(Path(__file__).with_name("program.py"))
START_S, END_S = 120, 180
ATTEMPTS = 3
MODES = {"direct": ("--direct",), "proxied": ()}


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
    unsaid = tuple(pattern for pattern in way.says if not re.search(pattern, text))
    wrong = re.search(f".*{re.escape(WRONG_SUM)}.*", text)
    wrong_sum = wrong.group() if wrong else ""
    return Ending(code, round(seconds, 1), first(text), unsaid, left, wrong_sum, str(folder))


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


def both(way: Way, folder: Path, pool: Executor) -> dict[str, Ending]:
    """Run it in both modes, side by side."""
    jobs = {mode: pool.submit(end, way, mode, folder / mode) for mode in MODES}
    return {mode: job.result() for mode, job in jobs.items()}


def measure(way: Way, folder: Path, pool: Executor) -> tuple[dict[str, Ending], list[str]]:
    """Run it in both modes, and again where the machine may have made the difference.

    Return the last endings, and what is wrong with them.
    """
    for attempt in range(ATTEMPTS):
        found = both(way, folder / str(attempt), pool)
        wrong = unexplained(way, found)
        if not wrong or set(wrong) - set(busy_differences(found)):
            break
        print(f"endings: {way.name}, attempt {attempt + 1}: {'; '.join(wrong)}", flush=True)
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words or names, separated by commas")
    parser.add_argument("--page", type=Path, help="write the table there")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    # A shell's background job ignores SIGINT, and with it all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="endings-"))
    rows, bad = [], 0
    results = {}
    with ThreadPoolExecutor(len(MODES)) as pool:
        for way in WAYS:
            if wanted and not wanted & {way.word, way.name, way.victim}:
                continue
            found, wrong = measure(way, folder / way.name, pool)
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

        options.page.write_text(page(version("torch"), rows))
    print(f"endings: {len(rows)}, of which {bad} are bad" + (f": {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
