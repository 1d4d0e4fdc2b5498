"""docs/house.md as text: the numbers of `house.py`, before and now, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Numbers = Mapping[str, Any]


class Stop(Protocol):
    """A file of a walk, as house.py reads it."""

    file: str
    why: str
    opened: bool


TITLE = """\
# The house, in numbers

Written by `python tools/check/house.py write`; do not edit. *Before* is commit 1d5676e, whose
numbers lie in `tools/check/house_before.json`. They were made in a copy of that commit:

    git archive 1d5676e | tar x -C /tmp/before
    python tools/check/house.py measure /tmp/before --walks before > tools/check/house_before.json

*Now* is the tree in which the page was written. Generated code is in neither. Lengths are lines,
with comments and blank ones. p90: nine of ten are no longer.

Figures of the product are made from `bench/results/`. Tables of results in `docs/research/` are
typed (replay, rehearsal, ecrl, lab). Each is the record of one run of the commands on its page.
"""

LINES = """\
Lines of code and tables (TOML, from which code is made), generated code left out. The review of the
house expected about 10,000 lines less. **That is missed.** The house was rebuilt while the product
grew: several hosts, images, flushes, DMR and the lab came in the same time. So these sums say
nothing of the house alone.
"""

DEVIATIONS = """\
What the tree does otherwise on purpose.

* *Prototypes are made of the vendor's headers at each build.* They are checked in, since a machine
  that builds has not all of these headers ([proxy/api](../proxy/api/README.md)). The compiler and a
  test compare them with the headers that are installed.
* *cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE move to a folder of their own below `proxy`.* The
  review did not demand it, and it is declined. Their records stay with all others, since one
  generator reads them. What is written by hand stays on its side of the ring, in
  `proxy/client/libraries` and `proxy/server/handlers`.
"""

WALKS = """\
A walk is what a reader opens to follow one call, or one fault, from its first file to its last.
Generated files are left out. `tools/check/walks.toml` lists the files of both columns; a test
checks that those of today exist.

**What is counted.** A file is *opened* if something is decided or done in it about this call or
fault, or if another process gets it there. The control flow *enters* more files. At those a reader
can stop: the line that calls them, and the comment at the declaration, say what they promise.
Others are for another kind of fault. Such files have a list of their own, with that promise.

*Kill to recovery* follows `pyft inject server-kill` in a DDP job on soft GPUs until its step goes
on. The goal is 25 files in two rooms, each passed once. The files that are opened keep it. The
review counted all that are entered: **by that count it is missed**, as it was before. Fewer files
were opened before. One of them, `servers.py`, took deaths in, did what was decided and started
servers, and was passed three times. Now these are three files, passed once each. Only the end comes
back: the new server's word goes through `router.py` to the plan. The rooms are the agent's
(`pyft/`) and the server's (`proxy/`). By the files that are opened, *two rooms passed once each* is
met but for that end.

*ncclAllReduce* had the goal of one folder of collectives. **It is missed**: there is one in each
program that the call passes. Three things keep them apart.

* The client's part is preloaded into the user's program, and the server's runs beside the GPU.
  `tools/check/layering.py` refuses that one includes the other, so no folder can have both.
* flexccl is a library by itself. It includes nothing of ours, and its own tests need nothing else.
* `proxy/collectives` joins flexccl with soft GPUs, and includes the interfaces of both. The other
  parts must not: flexccl stands alone, and the server has its backend's table.

What lies between them has nothing to do with collectives: ring, loop and dispatch are on the way of
each call. Folders were split since, so a walk passes more of them, and smaller ones.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" + "|--:" * (len(head) - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"
    yield ""


def change(before: object, now: object) -> str:
    return str(now) if before == now else f"{before} → {now}"


def spreads(what: str, before: Numbers, now: Numbers) -> Iterator[str]:
    """Yield the table of a distribution for each part of the tree."""
    keys = ("count", "sum", "p50", "p90", "max")
    head = ("part", what, "lines", "p50", "p90", "max")
    rows = ([part, *(change(before[part][key], now[part][key]) for key in keys)] for part in now)
    return table(head, rows)


def beside(
    head: Sequence[str], before: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]
) -> Iterator[str]:
    """Yield two rankings beside each other; a row is a name and its numbers.

    Only names of today are in backquotes: those have to exist (`links.py`).
    """

    def cells(ranking: Sequence[Sequence[Any]], place: int, quote: str) -> list[str]:
        if place >= len(ranking):
            return ["", ""]
        name, *numbers = ranking[place]
        return [f"{quote}{name}{quote}", " / ".join(map(str, numbers))]

    places = range(max(len(before), len(now)))
    yield f"| before | {head[1]} | now | {head[1]} |"
    yield "|---|--:|---|--:|"
    for place in places:
        yield f"| {' | '.join(cells(before, place, '') + cells(now, place, '`'))} |"
    yield ""


def ring_list(rings: Sequence[Sequence[str]], quote: str = "") -> Iterator[str]:
    for ring in rings:
        yield f"* {', '.join(f'{quote}{folder}{quote}' for folder in ring)}"
    if not rings:
        yield "None."
    yield ""


def listed(stops: Iterable[Stop], bullet: str) -> Iterator[str]:
    return (f"{bullet} `{one.file}`" + (f": {one.why}" if one.why else "") for one in stops)


def lines_of_all(before: Numbers, now: Numbers, removed: Mapping[str, int]) -> Iterator[str]:
    """Yield what the tree has in lines, and what was removed."""
    keys = ("code", "tables")
    rows = [
        [part, *(change(before[key].get(part, 0), now[key].get(part, 0)) for key in keys)]
        for part in now["tables"]
    ]
    total = [sum(one[key].values()) for key in keys for one in (before, now)]
    yield from table(
        ("part", "code", "TOML"), [*rows, ["all", change(*total[:2]), change(*total[2:])]]
    )
    yield f"Removed since then: {removed['removed']} lines. Added: {removed['added']}. That is git's"
    yield "count of these files, generated ones as well. A file that has moved is the same file."
    yield ""


def in_lines(numbers: Numbers) -> Numbers:
    """Return the lines of each part: of code and of tables."""
    code = {part: spread["sum"] for part, spread in numbers["files"].items()}
    return {"code": code, "tables": numbers["tables"]}


def page(
    before: Numbers,
    now: Numbers,
    walks: Mapping[str, Sequence[Stop]],
    removed: Mapping[str, int],
) -> str:
    """Return docs/house.md; `removed`: lines, by git, and those added."""
    lines = [TITLE, "## Files", ""]
    lines += spreads("files", before["files"], now["files"])
    lines += ["Folders with the most files of code directly in them:", ""]
    lines += beside(("folder", "files"), before["folders"], now["folders"])
    lines += ["## Lines", "", LINES]
    lines += lines_of_all(in_lines(before), in_lines(now), removed)
    lines += ["## Folders that include each other in a cycle", "", "Before:", ""]
    lines += ring_list(before["cycles"])
    lines += ["Now:", ""]
    lines += ring_list(now["cycles"], "`")
    lines += ["## Functions", ""]
    lines += spreads("functions", before["functions"], now["functions"])
    lines += [
        f"Over 60 lines, outside tests: {change(before['over_long'], now['over_long'])}. "
        "The longest:",
        "",
    ]
    lines += beside(("function", "lines"), before["longest"], now["longest"])
    lines += ["## Classes", "", "The most methods, and how many files define them:", ""]
    lines += beside(("class", "methods / files"), before["classes"], now["classes"])
    lines += ["## Not as the review asked", "", DEVIATIONS]
    lines += ["## Walks", "", WALKS]
    keys = ("opened", "entered", "folders")
    lines += table(
        ("walk", "files opened", "files entered", "folders of opened files"),
        (
            [
                f"`{name}`",
                *(change(*(one["walks"][name][key] for one in (before, now))) for key in keys),
            ]
            for name in now["walks"]
        ),
    )
    for name, stops in walks.items():
        lines += [f"`{name}`:", "", *listed((one for one in stops if one.opened), "1."), ""]
        if behind := [one for one in stops if not one.opened]:
            lines += ["Behind interfaces, or for other faults:", "", *listed(behind, "*"), ""]
    return "\n".join(lines).rstrip() + "\n"
