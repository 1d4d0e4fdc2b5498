"""`make bench-ccl`: flexccl beside gloo, measured in turns in the same run.

Every figure is a median (min to max, n). A ratio is made of neighbours in time: of each round's two
blocks, not of two medians. Ends with 1 when something failed, and when a target is missed that no
figure says is missed on purpose.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ccl_allreduce import all_reduce_table
from ccl_repairs import repair_tables
from figures import Figure, exit_code
from result_file import write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="blocks per library and size")
    parser.add_argument("--repeats", type=int, default=11, help="samples per kind of repair")
    parser.add_argument("--only", choices=("all-reduce", "repair"), help="one half")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures there; for repairs also to FILE-shares and FILE-slopes",
    )
    arguments = parser.parse_args()
    if arguments.json and not arguments.only:
        parser.error("--json is for one half: say which by --only")
    started = time.monotonic()
    failed, measured = [], list[Figure]()
    halves = {
        "all-reduce": lambda: all_reduce_table(arguments.rounds),
        "repair": lambda: repair_tables(arguments.repeats),
    }
    for name, run in halves.items():
        if arguments.only not in (None, name):
            continue
        try:
            found = run()
        except RuntimeError as error:
            print(f"bench-ccl: [{name}] failed: {error}", file=sys.stderr)
            failed.append(name)
            continue
        measured += [figure for figures in found.values() for figure in figures]
        for suffix, figures in found.items() if arguments.json else ():
            write(arguments.json.with_stem(arguments.json.stem + suffix), figures)
    print(f"\nbench-ccl took {time.monotonic() - started:.0f} s")
    return exit_code("bench-ccl", measured) or int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
