"""The job of a cell: its command, its end, and how it is begun again when all of it was lost.

A rank that comes to `job-kill` or `disk-lost` asks for it and waits. All processes of the job have the cell's folder
in their environment, by which they are found, wherever they have been moved to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyft_lab.api import ASKED, DISK_LOST, KILLED, Mechanism
from pyft_lab.errors import LabError
from pyft_lab.matrix import storage, tied
from pyft_lab.matrix.spec import Cell
from pyft_lab.mechanisms import find

END_S = 10.0  # for a job to end in order, when its time is up
POLL_S = 0.02
ENDED = "launch.json"  # how the last job of a cell has ended
MARK = "LAB_FOLDER"


def pyft_program() -> Path:
    program = Path(sys.executable).with_name("pyft")
    if not program.exists():
        raise LabError(f"substrate [soft] needs the command pyft: there is no [{program}]")
    return program


def filled(words: tuple[str, ...], folder: Path, cell: Cell) -> list[str]:
    """Return words of a mechanism with the cell's folder and interval in them."""
    return [word.format(folder=folder, interval=cell.interval) for word in words]


def pyft_run(folder: Path, cell: Cell, number: int) -> list[str]:
    """Return the words in front of a command on soft GPUs; those of job 1 begin it again."""
    mechanism = find(cell.mechanism)
    log = ("--log-dir", str(folder / f"log-{number}"))
    words = [str(pyft_program()), "run", *log, "--report", str(folder / f"report-{number}.json")]
    if number and mechanism.resume and has_lines(folder, mechanism):
        return [*words, *filled(mechanism.resume, folder, cell)]
    spares = [] if "--direct" in mechanism.options else ["--spares", str(max(len(cell.faults), 1))]
    options = filled(mechanism.options, folder, cell)
    return [*words, "--gpus", f"soft:{cell.ranks}", *spares, *options, "--"]


def has_lines(folder: Path, mechanism: type[Mechanism]) -> bool:
    """Say whether there is what a job can be resumed from."""
    return any(folder.glob(mechanism.resumes_from))


def attempts(folder: Path) -> int:
    """Return how often all ranks have been started."""
    return len(list(folder.glob("output-*-0")))


def command(folder: Path, cell: Cell, timeout_s: float, number: int = 0) -> list[str]:
    """Return the command that runs a cell; `number`: how many jobs of it were lost."""
    soft = pyft_run(folder, cell, number) if cell.substrate == "soft" else []
    tie = [sys.executable, str(Path(tied.__file__)), str(os.getpid())]
    if soft and soft[-1] != "--":  # a job that is resumed has its command
        return [*tie, *soft]
    restarts = len(cell.faults) if find(cell.mechanism).relaunches else 0
    counts = (cell.ranks, cell.last_ranks, restarts, int(timeout_s), attempts(folder))
    launch = [sys.executable, "-m", "pyft_lab.matrix.launch", str(folder), *map(str, counts)]
    if storage.has_small_disk({fault.kind for fault in cell.faults}):
        launch = [*storage.SMALL, *launch]
    return [*tie, *soft, *launch]


def environment_of(folder: Path, cell: Cell) -> dict[str, str]:
    own = find(cell.mechanism).environment
    words = dict(zip(own, filled(tuple(own.values()), folder, cell), strict=True))
    fixed = {"OMP_NUM_THREADS": "1", "SOFTGPU_THREADS": "1", MARK: str(folder)}
    return fixed | {"SOFTGPU_CONTROL": str(folder / "control")} | words


def supervise(folder: Path, cell: Cell, timeout_s: float) -> None:
    """Run a cell to its end, whatever that is; a job that was lost is begun again."""
    last = time.monotonic() + timeout_s
    for number in range(1 + len(cell.faults)):
        left = max(last - time.monotonic(), 1.0)
        (folder / ENDED).unlink(missing_ok=True)
        if number and find(cell.mechanism).resume and not has_lines(folder, find(cell.mechanism)):
            clear_disks(folder, find(cell.mechanism))
        with (folder / f"output-job{number}").open("wb") as output:
            job = subprocess.Popen(
                command(folder, cell, left, number),
                env=os.environ | environment_of(folder, cell),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            killed = wait(job, folder, cell, left + END_S)
        finally:
            end(job)
        if time.monotonic() > last or not (killed or is_lost(folder, cell)):
            return


def is_lost(folder: Path, cell: Cell) -> bool:
    """Say whether a job has ended before its time that its user would begin again."""
    path = folder / ENDED
    ended = json.loads(path.read_text())["action"] if path.exists() else "died"
    return ended in ("died", "gave up") and find(cell.mechanism).begins_anew


def wait(job: subprocess.Popen[bytes], folder: Path, cell: Cell, seconds: float) -> bool:
    """Wait for a job's end, and kill all of it if a rank asks for that; say whether one did."""
    last = time.monotonic() + seconds
    while job.poll() is None and time.monotonic() < last:
        for number, fault in enumerate(cell.faults):
            asked, killed = (folder / f"job-{number}{end}" for end in (ASKED, KILLED))
            if asked.exists() and not killed.exists():
                kill_all(str(folder))
                if fault.kind == DISK_LOST:
                    lose_disk(folder / find(cell.mechanism).disks[0])
                killed.touch()
                return True
        time.sleep(POLL_S)
    return False


def clear_disks(folder: Path, mechanism: type[Mechanism]) -> None:
    """Take away what of a line was written when the job ended: pyft begins in empty folders only."""
    for disk in mechanism.disks:
        lose_disk(folder / disk)


def lose_disk(folder: Path) -> None:
    """Put a new disk in place of one that is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def end(job: subprocess.Popen[bytes]) -> None:
    """End a job whose time is up: in order, if it does so."""
    if job.poll() is None:
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(END_S)
    if job.poll() is None:
        job.kill()
    job.wait()


def marked(folder: str) -> list[int]:
    """Return all living processes that have the folder of a cell in their environment."""
    found, word = [], f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and word in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def kill_all(folder: str) -> None:
    """Kill a job as the loss of its machine does: stopped first, so that none sees another end."""
    last = time.monotonic() + END_S
    while (pids := marked(folder)) and time.monotonic() < last:
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
        time.sleep(POLL_S)
    if pids:
        raise LabError(f"processes {pids} of [{folder}] do not end")
