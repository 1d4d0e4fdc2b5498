"""One job that loses a host every 20 steps, and ends equal (`hosts_again.py [--steps 200]`).

Lost is the host of each place in turn, silently. It comes back as a spare host when its place is
elsewhere, so that the next loss finds one. Printed is what each loss has cost, and the goodput: steps that
count, as a share of the time. Memory of the head and bytes on disk after the last loss are compared with
those after the second one, when all that is needed has been there once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402
from job import wait_for  # noqa: E402

EVERY, PLACES, SPARES = 20, 2, 2
PAUSE_S = 0.3  # so that 20 steps take longer than two lines do
MOST_GROWTH = 1.5  # of memory and disk, over all losses
BACK = "all have come back, and go on"


def host_of(job: several.SeveralHosts, place: int) -> fabric.Host:
    """Return the host that has a place."""
    said = re.findall(rf"place \[{place}\] is on host \[(\w+)\]", job.said("head"))
    taken = re.findall(rf"host \[(\w+)\] takes place \[{place}\]", job.said("head"))
    name = taken[-1] if taken else said[-1]
    return next(host for host in job.fabric.hosts if host.name == name)


def head_kb(job: several.SeveralHosts) -> int:
    """Return the memory of the head."""
    status = Path(f"/proc/{job.head.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


def disk_bytes(folder: Path) -> int:
    """Return what the job has on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def lose(job: several.SeveralHosts, number: int, step: int) -> tuple[int, int]:
    """Lose a host at a step, and bring it back; return memory and disk after that."""
    job.wait_for_step(0, step, 120)
    victim, backs = host_of(job, number % PLACES), job.said("head").count(BACK)
    lines = job.said("head").count("is the line of all")
    killed = time.monotonic()
    victim.kill()
    wait_for(lambda: job.said("head").count(BACK) > backs, 120, job.everything)
    cost = time.monotonic() - killed
    job.start_again(victim)
    # Another loss before there is a copy again would be one more than copies survive.
    wait_for(lambda: job.said("head").count("is the line of all") > lines + 1, 120, job.everything)
    print(f"step {step}: {victim.name} is lost; all go on after [{cost:.1f}] s", flush=True)
    return head_kb(job), disk_bytes(job.folder)


def main() -> int:
    """Return 0 if all was equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    if why := movable.lacks() or fabric.lacks():
        print(why)
        return 1
    training = ("--steps", str(args.steps), "--pause", f"{PAUSE_S:g}")
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        wanted = movable.undisturbed(Path(name) / "undisturbed", *training)
        alone_s = time.monotonic() - began
        with fabric.Fabric(PLACES + SPARES) as hosts:
            began = time.monotonic()
            job = several.SeveralHosts(Path(name) / "job", hosts, *training)
            job.wait_for_line()
            losses = range(EVERY, args.steps - EVERY + 1, EVERY)
            sizes = [lose(job, number, step) for number, step in enumerate(losses)]
            code, took_s = job.wait(240), time.monotonic() - began
            ledger = (job.folder / "ledger").read_text().splitlines()
            repeated = sum(json.loads(line)["kind"] == "onward" for line in ledger)
            equal = not code and job.results() == wanted
            if not equal:
                print(f"exit code [{code}], or other results: {job.everything()}")
    growth = [last / second for second, last in zip(sizes[1], sizes[-1], strict=True)]
    print(f"{len(sizes)} hosts lost, {repeated} times all went back; bits equal: {equal}")
    print(f"goodput [{alone_s / took_s:.2f}]: {alone_s:.0f} s without a loss, {took_s:.0f} s with")
    print(f"since the second loss: head's memory x {growth[0]:.2f}, disk x {growth[1]:.2f}")
    return int(not equal or len(sizes) < 2 or max(growth) > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
