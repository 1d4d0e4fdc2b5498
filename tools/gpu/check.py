"""What tools/gpu/check.sh runs: all checks in order, one line each. docs/gpu-results.md."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import tempfile
from pathlib import Path

import artifacts
import building
import jobs
import large
import measurements
import nccl
import recoveries
from artifacts import Artifacts
from checklist import Check, Checklist
from machine import Machine, end

SECONDS = 530  # all together: the limit is 9 minutes
MEASUREMENTS = (building.PROGRAMS, *measurements.CHECKS)  # with a GPU, while pyft is compiled
# What says most comes first: there may be no time left for the last ones.
PARTS: dict[str, tuple[Check, ...]] = {
    "measurements": MEASUREMENTS,
    "build": (building.BUILD, jobs.SMOKE),
    "nccl": nccl.CHECKS,
    "recoveries": (*large.CHECKS, *recoveries.CHECKS),
    "jobs": (building.DOCTOR, jobs.EXAMPLES, *jobs.CHECKS),
}
assert len(PARTS) <= artifacts.PARTS
PART_OF = {check.name: part for part, checks in PARTS.items() for check in checks}


def checks_of(gpu: bool) -> list[Check]:
    """Return all checks in their order.

    A soft GPU is a part of pyft: with one, pyft is built before anything is measured.
    """
    ordered = [check for part in PARTS.values() for check in part]
    if gpu:
        return ordered
    programs = dataclasses.replace(building.PROGRAMS, needs=("build",))
    others = [one for one in ordered if one not in (building.BUILD, building.PROGRAMS)]
    return [building.BUILD, programs, *others]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="check.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--soft", action="store_true", help="soft GPUs, even if there is one")
    parser.add_argument("--only", default="", help="names of checks, or parts of names: a,b")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--markdown", type=Path, help="write the table for docs/gpu-results.md")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install from")
    parser.add_argument("--artifacts", type=Path, help="folder for traces, logs, stacks, reports")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all checks together")
    return parser.parse_args()


def chosen(only: str, installed: bool, gpu: bool) -> list[Check]:
    """Return the checks whose names have one of these parts, and before them what they need.

    Where pyft is installed it is not built again for their sake.
    """
    checks = checks_of(gpu)
    parts = [part for part in only.split(",") if part]
    named = [check.name for check in checks if any(part in check.name for part in parts)]
    needed = set(named) if parts else {check.name for check in checks}
    for check in reversed(checks):  # what is needed comes before
        if check.name in needed:
            needed |= {name for name in check.needs if not (installed and name == "build")}
    return [check for check in checks if check.name in needed]


def main() -> int:
    arguments = parse()
    if arguments.list:
        print("\n".join(check.name for check in checks_of(gpu=True)))
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        machine = Machine.find(arguments.soft, Path(folder), arguments.wheels)
        print(machine.sentence(), flush=True)
        building.find_installed(machine)
        kept = (
            Artifacts(arguments.artifacts, machine.kept, PART_OF) if arguments.artifacts else None
        )
        checklist = Checklist(machine, arguments.seconds, kept)

        def write_table() -> None:
            if arguments.markdown:
                arguments.markdown.write_text(checklist.markdown(sys.argv[1:]))

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        checks = chosen(arguments.only, bool(machine.pyft), machine.gpu)
        try:
            if building.BUILD in checks:
                building.start(machine)
            checklist.run_all(checks, write_table)
        finally:
            if machine.builder and machine.builder.poll() is None:
                end(machine.builder)
        checklist.print_sum()
    return checklist.failed > 0


if __name__ == "__main__":
    sys.exit(main())
