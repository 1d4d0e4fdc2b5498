"""`make test-programs`: programs of other people's frameworks, with faults.

Each runs without servers, with them, with a server that is killed, and with a lost GPU. Losses and
hashes of the parameters have to be equal, bit for bit (verdicts.py). A fault that does not happen is a
failure. Models come from configurations and random weights, data from a seed: nothing is downloaded
but the packages, once, into build/programs.

    make test-programs
    make test-programs PROGRAMS="--only lightning-ddp,tp"
    make test-programs PROGRAMS="--json tests/programs/results.json --page docs/programs.md"
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import environment  # noqa: E402
from job import Job  # noqa: E402
from matrix import PROGRAMS, Program  # noqa: E402
from stopped import STOPPED, Stopped  # noqa: E402
from table import write  # noqa: E402
from verdicts import DIRECT, KILLED, LOST, MODES, Run, results, row  # noqa: E402

SOURCES = Path(__file__).with_name("src")
SECONDS = 150  # several times what one takes
LAST_LINES = 3


def command(program: Program, python: Path) -> list[str]:
    """Return its command line."""
    known = {"ranks": program.ranks, "port": random.randrange(15000, 32000)}
    launcher = [word.format(**known) for word in program.launcher]
    script, *arguments = program.words
    return [str(python), *launcher, str(SOURCES / script), *arguments]


def options(program: Program, mode: str, report: Path) -> tuple[str, ...]:
    """Return those of `pyft run`."""
    gpus = ("--gpus", f"soft:{program.ranks}", "--report", str(report))
    rank = f"rank={program.ranks - 1}"
    lost = program.lost_place or program.place
    of_mode = {
        DIRECT: ("--direct",),
        KILLED: ("--inject", f"server-kill,{rank},{program.place}"),
        LOST: ("--spares", "1", "--inject", f"gpu-lost,{rank},{lost}"),
    }
    return gpus + of_mode.get(mode, ())


def settings(program: Program, shared: Path) -> dict[str, str]:
    """Return what its environment has besides."""
    return {name: value.format(shared=shared) for name, value in program.settings.items()}


def run(program: Program, mode: str, python: Path, folder: Path) -> Run:
    """Run it once."""
    temporary, report = folder / "tmp", folder / "report.json"
    temporary.mkdir(parents=True)
    since = time.monotonic()
    job = Job(
        folder,
        command(program, python),
        options=options(program, mode, report),
        environment={
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            "HF_HUB_OFFLINE": "1",
            **settings(program, folder.parent / "shared"),
        },
    )
    try:
        code = job.wait(SECONDS)
        seconds = round(time.monotonic() - since, 1)
        left = remains(job)
    except subprocess.TimeoutExpired:
        return Run(None, seconds=SECONDS)
    finally:
        job.kill_everything()
    recovery = json.loads(report.read_text())["recovery"] if report.exists() else {}
    return Run(
        code,
        results(job.output()),
        recovery.get("faults", ()),
        recovery.get("not_injected", ()),
        recovery.get("verdict", ""),
        seconds,
        left,
        " / ".join(job.errors().strip().splitlines()[-LAST_LINES:]),
    )


def remains(job: Job) -> str:
    """Return what is left of it after a while."""
    try:
        job.assert_nothing_left()
    except AssertionError as error:
        return str(error).splitlines()[0]
    return ""


def one(program: Program, folder: Path) -> dict:
    """Run it in all modes; return its row, and keep the folder if something is wrong."""
    python = environment.python(program.pins)
    runs = {}
    for mode in MODES:
        runs[mode] = run(program, mode, python, folder / mode)
        if runs[DIRECT].code != 0:
            break  # there is nothing to compare others with
    found = row(runs, environment.versions(python, program.packages), program.ranks)
    seconds = " ".join(f"{mode} {one.seconds} s" for mode, one in runs.items())
    print(f"programs: {program.name}: {seconds} {found['wrong'] or 'equal'}", flush=True)
    if not found["wrong"]:
        shutil.rmtree(folder)
    return found


def try_stopped(case: Stopped, folder: Path) -> dict:
    """Run it; return what the results say."""
    python = environment.python(case.pins)
    (folder / "tmp").mkdir(parents=True)
    job = Job(
        folder,
        [
            str(python),
            *(str(SOURCES / word) if word.endswith(".py") else word for word in case.words),
        ],
        options=("--gpus", "soft:1", *case.options),
        environment={"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp"), **case.settings},
    )
    wrong = []
    try:
        if job.wait(SECONDS) == 0:
            wrong.append("it runs: put it into the matrix")
    except subprocess.TimeoutExpired:
        wrong.append("it has not ended")
    finally:
        job.kill_everything()
    if not re.search(case.says, job.output() + job.errors()):
        wrong.append(f"nothing says [{case.says}]")
    print(f"programs: {case.name}: {'; '.join(wrong) or 'stops, as is known'}", flush=True)
    return {"versions": environment.versions(python, case.packages), "wrong": wrong}


def save(path: Path, rows: Mapping[str, Mapping], stopped: Mapping[str, Mapping]) -> dict:
    """Put the rows into those that are there, in the order of the matrix."""
    there = json.loads(path.read_text()) if path.exists() else {"programs": {}, "stopped": {}}
    for kind, new, names in (
        ("programs", rows, [one.name for one in PROGRAMS]),
        ("stopped", stopped, [one.name for one in STOPPED]),
    ):
        both = {**there[kind], **new}
        there[kind] = {name: both[name] for name in names if name in both}
    there["torch"] = version("torch")
    path.write_text(json.dumps(there, indent=1) + "\n")
    return there


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--json", type=Path, help="put the results into this file")
    parser.add_argument("--page", type=Path, help="write the table there; needs --json")
    parser.add_argument("--jobs", type=int, default=1, help="how many programs run at once")
    args = parser.parse_args()
    if args.page and not args.json:
        parser.error("[--page] needs [--json]")
    wanted = set(filter(None, args.only.split(",")))
    names = {one.name for one in (*PROGRAMS, *STOPPED)}
    if wanted - names:
        parser.error(f"no program {sorted(wanted - names)}: there are {sorted(names)}")
    chosen = [program for program in PROGRAMS if not wanted or program.name in wanted]
    for pins in sorted({program.pins for program in chosen}):
        environment.python(pins)  # before several programs want it at once
    folder = Path(tempfile.mkdtemp(prefix="programs-"))
    rows, stopped = {}, {}
    with ThreadPoolExecutor(args.jobs) as pool:
        coming = {pool.submit(one, program, folder / program.name): program for program in chosen}
        for done in as_completed(coming):
            rows[coming[done].name] = done.result()
            if args.json:
                there = save(args.json, rows, stopped)
    for case in STOPPED:
        if not wanted or case.name in wanted:
            stopped[case.name] = try_stopped(case, folder / case.name)
    if args.json:
        there = save(args.json, rows, stopped)
    if args.page:
        write(args.page, there)
    bad = [name for name, row in {**rows, **stopped}.items() if row["wrong"]]
    print(f"programs: {len(rows) + len(stopped)}, of which {len(bad)} are bad {bad or ''}", end="")
    print(f": {folder}" if bad else "")
    if not bad:
        shutil.rmtree(folder)
    return int(bool(bad))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
