"""For how long a process stands still for a dump, with and without a pre-dump (`pre_dumps.py`).

Needs root, CRIU (tools/get/criu) and a kernel that tracks writes: `tests/nodes/guest.py` starts one.
CRIU is called as pyft does. A process has memory that it never writes again, and some that it does:

    whole        seconds of a dump of all pages
    stood        seconds that the process stood still for a pre-dump, by CRIU
    after        seconds of the dump after it: pages that were written since
    each GB      what each GB more of memory costs, of each of these

After the last dump the process is killed and restored: all of its memory has to be as it was, or the
benchmark fails.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from figures import Figure, print_table  # noqa: E402

from pyft.images import criu, dump_stats, image_folder  # noqa: E402

WAIT_S = 600.0
WRITTEN_MB = 4
BETWEEN_S = 1.0  # from the pre-dump to the dump, in which it writes
# Signal 10: what it has is written down, with the round that it is in.
PROGRAM = """
import hashlib, os, signal, sys, time
size, said, written = int(sys.argv[1]) << 20, sys.argv[2], int(sys.argv[3]) << 20
large = bytearray(hashlib.sha256(b"pyft").digest()) * (size // 32)
count, asked = 0, False
def ask(*_):
    global asked
    asked = True
signal.signal(signal.SIGUSR1, ask)
open(f"{said}.ready", "w").close()
while True:
    count += 1
    for at in range(0, written, 4096):
        large[at : at + 8] = count.to_bytes(8, "little")
    if asked:
        asked = False
        with open(f"{said}.new", "w") as out:
            out.write(f"{count} {hashlib.sha256(large).hexdigest()}")
        os.rename(f"{said}.new", said)
    time.sleep(0.02)
"""


@dataclass
class Trial:
    """What one process has cost."""

    bytes: int
    whole_s: float
    stood_s: float
    after_s: float


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait; end when that takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"bench/pre_dumps.py: not within [{WAIT_S:g}] s: {what}")
        time.sleep(0.01)


def timed(arguments: list[str], folder: Path) -> float:
    """Run CRIU; return its seconds."""
    begun = time.monotonic()
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, timeout=WAIT_S, check=False)
    if done.returncode:
        sys.exit(f"bench/pre_dumps.py: {arguments[1]}: {criu.why_failed(folder)}")
    return time.monotonic() - begun


def expected(size_mb: int, count: int) -> str:
    """Return the digest of all that a process has in a round."""
    large = bytearray(hashlib.sha256(b"pyft").digest()) * ((size_mb << 20) // 32)
    for at in range(0, WRITTEN_MB << 20, 4096):
        large[at : at + 8] = count.to_bytes(8, "little")
    return hashlib.sha256(large).hexdigest()


def trial(program: Path, folder: Path, size_mb: int) -> Trial:
    """Dump a process in both ways, kill it, and restore it from the second one."""
    folder.mkdir()
    said = folder / "said"
    command = [sys.executable, "-c", PROGRAM, str(size_mb), str(said), str(WRITTEN_MB)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(command, **quiet, stderr=subprocess.DEVNULL)
    whole, image = folder / "whole", folder / "image"
    for one in (whole, image):
        one.mkdir()
    try:
        wait_for((folder / "said.ready").exists, "it has its memory")
        process.send_signal(signal.SIGSTOP)
        whole_s = timed(criu.dump_arguments(program, process.pid, whole, []), whole)
        process.send_signal(signal.SIGCONT)
        pre_dump = image_folder.make_pre_dump(folder, "", 0)
        timed(criu.pre_dump_arguments(program, process.pid, pre_dump), pre_dump)
        stood_s = dump_stats.stood_s(pre_dump)
        time.sleep(BETWEEN_S)
        parent = image_folder.PRE_DUMP if image_folder.take_pre_dump(image, pre_dump) else ""
        process.send_signal(signal.SIGSTOP)
        arguments = criu.dump_arguments(program, process.pid, image, [], parent)
        after_s = timed(arguments, image)
    finally:
        process.kill()
        process.wait()
    restored(program, image, process.pid, said, size_mb)
    size = image_folder.bytes_of(whole)
    return Trial(size, whole_s, stood_s, after_s)


def restored(program: Path, image: Path, pid: int, said: Path, size_mb: int) -> None:
    """Restore a process, and compare all that it has."""
    arguments = [a for a in criu.restore_arguments(program, image) if a != "--restore-sibling"]
    timed(arguments, image)
    try:
        subprocess.run(["kill", "-CONT", str(pid)], check=True)
        subprocess.run(["kill", "-USR1", str(pid)], check=True)
        wait_for(said.exists, "the restored process says what it has")
        count, digest = said.read_text().split()
        if digest != expected(size_mb, int(count)):
            sys.exit("bench/pre_dumps.py: the restored process has other memory")
    finally:
        subprocess.run(["kill", "-KILL", str(pid)], check=False)


def each_gb(small: list[Trial], large: list[Trial], name: str) -> float:
    """Return the seconds that each GB more costs."""
    values, sizes = (
        [statistics.median(getattr(one, what) for one in trials) for trials in (small, large)]
        for what in (name, "bytes")
    )
    return (values[1] - values[0]) / (sizes[1] - sizes[0]) * 1e9


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--small-mb", type=int, default=50)
    parser.add_argument("--large-mb", type=int, default=1000)
    asked = parser.parse_args()
    program = criu.find()
    if why := criu.lacks(program):
        sys.exit(f"bench/pre_dumps.py: {why}")
    assert program
    if not criu.tracks_writes(program):
        sys.exit("bench/pre_dumps.py: the kernel does not track writes: see tests/nodes/guest.py")
    found: dict[int, list[Trial]] = {asked.small_mb: [], asked.large_mb: []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(asked.trials):
            for size_mb, trials in found.items():
                trials.append(trial(program, Path(name) / f"{size_mb}-{number}", size_mb))
                print(trials[-1], flush=True)
    small, large = found.values()
    figures = []
    for field, what in (("whole_s", "whole"), ("stood_s", "stood"), ("after_s", "after")):
        figures.append(
            Figure(f"{what}, {asked.large_mb} MB", [getattr(o, field) for o in large], "s")
        )
        figures.append(Figure(f"{what}, each GB", [each_gb(small, large, field)], "s"))
    print_table(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
