"""What tools/gpu/check.sh runs: all checks in order, one line each. docs/gpu-results.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import building
import jobs
import measurements
import recoveries
from checklist import Check, Checklist
from machine import Machine

SECONDS = 530  # all together: the limit is 9 minutes
CHECKS: tuple[Check, ...] = (
    *building.CHECKS,
    *measurements.CHECKS,
    *jobs.CHECKS[:1],
    *recoveries.CHECKS,
    *jobs.CHECKS[1:],  # what it costs comes last: there may be no time left for it
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="check.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--soft", action="store_true", help="software GPUs, even if there is one")
    parser.add_argument("--only", default="", help="names of checks, or parts of names: a,b")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--markdown", type=Path, help="write the table for docs/gpu-results.md")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install from")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all checks together")
    return parser.parse_args()


def chosen(only: str, installed: bool) -> list[Check]:
    """Return the checks whose names have one of these parts, and before them what they need.

    Where pyft is installed it is not built again for their sake.
    """
    parts = [part for part in only.split(",") if part]
    named = [check.name for check in CHECKS if any(part in check.name for part in parts)]
    needed = set(named) if parts else {check.name for check in CHECKS}
    for check in reversed(CHECKS):  # what is needed comes before
        if check.name in needed:
            needed |= {name for name in check.needs if not (installed and name == "build")}
    return [check for check in CHECKS if check.name in needed]


def main() -> int:
    arguments = parse()
    if arguments.list:
        print("\n".join(check.name for check in CHECKS))
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        machine = Machine.find(arguments.soft, Path(folder), arguments.wheels)
        print(machine.sentence(), flush=True)
        building.find_installed(machine)
        checklist = Checklist(machine, arguments.seconds)
        for check in chosen(arguments.only, bool(machine.pyft)):
            checklist.run(check)
            if arguments.markdown:  # each time: something else may end this one
                arguments.markdown.write_text(checklist.markdown(sys.argv[1:]))
        checklist.print_sum()
    return checklist.failed > 0


if __name__ == "__main__":
    sys.exit(main())
