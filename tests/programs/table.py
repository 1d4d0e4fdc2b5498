"""docs/programs.md, from the results of `make test-programs`.

python tests/programs/table.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import matrix
import stopped
from verdicts import DIRECT, KILLED, LOST, MODES, PROXIED

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "programs.md"
COMMAND = 'make test-programs PROGRAMS="--json tests/programs/results.json --page docs/programs.md"'

HEAD = """\
# Programs that run

From `tests/programs/results.json`, which `make test-programs` writes, with PyTorch {torch} on soft
GPUs. The programs are in `tests/programs/src`, the packages in `tests/programs/requirements*.txt`.

Each program runs four times:

* without [servers](glossary.md) (`--direct`);
* with servers;
* with servers, of which one is killed (`--inject server-kill`);
* with servers and a GPU that is lost (`--inject gpu-lost`, `--spares 1`).

All losses, and the hash of each rank's parameters, have to be equal, bit for bit.
A fault that does not happen is a failure, and so is a recovery that nobody asked for.
Models are small and have random weights, data come from a seed.

*Equal* says how many losses and hashes were compared.
The two columns of a fault say how long the rank stood still, and how many
[entries](glossary.md) were replayed.
Times are of one run, on a busy machine with two cores: they compare nothing.

| program | what | versions | ranks | `--direct` | with servers | killed server | lost GPU | equal |
|---|---|---|---|---|---|---|---|---|
"""


REPLICA = """\
`replica`: a tensor that both ranks have is freed, and another one gets its place and size. If that
is no gradient, pyft may take it for [silent corruption](concepts/corruption.md), until two replays
say that the program lets the block differ. Results do not change, but the ranks wait."""

MISSING = """\
`make test-programs` runs these as well; the results here have no row of them."""


def _fault(found: list[Mapping]) -> str:
    if not found:
        return "none"
    longest = max(one["total_ms"] for one in found)
    entries = sum(one["replayed_entries"] for one in found)
    count = f"{len(found)} faults, " if len(found) > 1 else ""
    return f"{count}{longest:.0f} ms, {entries}"


def line(program: matrix.Program, row: Mapping) -> str:
    """Return a row of the table."""
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    # If it fails without servers, there is nothing to compare, and no other run of it.
    run = row["seconds"]
    seconds = [f"{run[mode]} s" if mode in run else "not run" for mode in (DIRECT, PROXIED)]
    faults = [_fault(row["faults"][mode]) if mode in run else "not run" for mode in (KILLED, LOST)]
    compared = f"{row['losses']}, {row['hashes']}"
    equal = f"{compared}, but see below" if row.get("equal") else "**no**, see below"
    equal = equal if row["wrong"] else compared
    cells = (program.name, program.text, versions, str(row["ranks"]), *seconds, *faults, equal)
    return f"| {' | '.join(cells)} |"


def bullet(text: str) -> str:
    """Return it as an item of a list."""
    settings = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 100, initial_indent="* ", subsequent_indent="  ", **settings)


def bad(results: Mapping) -> list[str]:
    """Return an item for each program that does not do what it should."""
    return [
        bullet(f"`{name}`, {mode}: {'; '.join(row['wrong'][mode])}")
        for name, row in results["programs"].items()
        for mode in MODES
        if mode in row["wrong"]
    ]


def page(results: Mapping) -> str:
    """Return all of it."""
    rows = [
        line(one, results["programs"][one.name])
        for one in matrix.PROGRAMS
        if one.name in results["programs"]
    ]
    parts = [HEAD.format(torch=results["torch"]) + "\n".join(rows)]
    if found := bad(results):
        parts += ["## What is wrong", "\n".join(found)]
        if any("'replica'" in one for one in found):
            parts.append(REPLICA)
    done = {*results["programs"], *results["stopped"]}
    known: tuple[matrix.Program | stopped.Stopped, ...] = (*matrix.PROGRAMS, *stopped.STOPPED)
    if missing := [one for one in known if one.name not in done]:
        items = [bullet(f"`{one.name}`: {one.text}") for one in missing]
        parts += ["## Not run yet", MISSING, "\n".join(items)]
    there = [one for one in stopped.STOPPED if one.name in results["stopped"]]
    if there:
        parts += ["## What does not run", stopped.INTRODUCTION]
        parts.append("\n".join(bullet(_why(one, results["stopped"][one.name])) for one in there))
    return "\n\n".join(parts) + "\n"


def write(path: Path, results: Mapping) -> None:
    """Write it."""
    path.write_text(page(results))


def _why(case: stopped.Stopped, row: Mapping) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    return f"{case.text} ({versions}): {case.why}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the page is up to date")
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    if args.check:
        return int(PAGE.read_text() != page(results))
    write(PAGE, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
