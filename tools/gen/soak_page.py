"""Makes docs/research/soak.md from docs/research/soak.json: what `make soak` has seen.

python tools/gen/soak_page.py [build/soak/soak.json]   # copies that file into the docs as well
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "research" / "soak.json"
PAGE = DATA.with_suffix(".md")
OUTCOMES = ("equal", "ended", "changed", "missed", "wrong bits", "bad")
RECOVERIES = ("recovered", "failed again", "client ended", "error delivered", "given up")
LONGEST = 110
WIDTH = 100

HEAD = """# Endurance

`make soak HOURS=1` trains on soft GPUs and disturbs that with everything at once, until the time is
over. Server, agent, supervisor, cut and all other words are explained in the
[glossary](../glossary.md).

```sh
make soak HOURS=1
make soak SOAK="--seed 7 --first 12 --runs 1"    # one run again
```

A *run* is one small training of `tests/sweep/cases.py`. What disturbs it is drawn from seed and
number (`tests/soak/disturbances.py`). It is compared with the same training without faults:

| outcome | means |
|---|---|
| equal | it ended well, and all losses and hashes have equal bits |
| ended | it ended before its time with a reason that was said. All that it had printed was right |
| changed | a silent fault has changed bits, and nothing saw it: that is what [silent faults](silent-faults.md) do |
| missed | a fault that was asked for had no occasion |
| wrong bits | other bits, without a silent fault |
| bad | anything else that may not be: a hang, a crash of an agent, something left behind |

Beside the runs one *long job* works all the time, and its growth is measured. Each call of
`make soak` adds a *stretch* to those before.

This page is made from [soak.json](soak.json) by `tools/gen/soak_page.py`.
"""

TAIL = """
## Limits

* Soft GPUs on one machine. Times of runs say nothing: other work was on it, as the loads show.
* Limits of addresses and memory are drawn for three cases only, from 0.9 to 1.1 of their need.
* Whether a run that ended could have gone on is not asked: it had to say why.
* Growth in a short stretch is rough. A process that lives less than 40 s is not in the table.
* Rings, arenas, stores and records fill up to their sizes once, which takes more than minutes.
  Until then memory objects grow. A stretch of half an hour or more has rows of its second half:
  what grows there as well is no filling up.
"""


# Of the stretches in the documents only: other soaks have pages too.
FOUND = """
## What was found

| stretch, runs | cause | since then |
|---|---|---|
| 2: 42, 162 | an agent died between noting a client and dropping its connection; the next one waited for that client, and heard no other | the supervisor does both at once (`test_the_next_one_hears_a_second_client`) |
| 2: 91, 139 | a kernel hung before the device had finished anything, which was taken for a device that nothing is known of | it is seen (`test_the_first_kernel_hangs`) |
| 2: long job | the launcher kept a descriptor for each client of each agent that took over | it keeps the last one (`test_launcher.py`) |
| 2: long job | its orders took 33 GPUs and brought 18 back, so a rank waited for a GPU: orders were refused or led to no recovery | the soak brings GPUs back (`test_a_long_job_always_gets_a_gpu_back`) |
| 3: long job | its log's arena filled up to 256 MB in the second half too | the soak's long job has one of 16 MB |
| 3: long job | an agent that took over kept the sockets of the servers that it found there, when these were replaced | it closes them (`test_many_servers.py`) |
| 3: long job | the agent kept each fault, and wrote all of them down at each event of a repair | it keeps 1024, and writes each once (`test_many_faults.py`) |
| 3: 94 | the agent heard at once that a client was killed and that CRIU had dumped: it dropped the image that was wanted | no image counts once all go back (`test_images_back.py`) |
| 4: 194 | a new server had too few addresses to map the store of another rank. That was said. The program had all of its results, and ended well | the sentence has the reason and the size; such a run counts as ended (`test_runs_are_judged`) |
| 4: 396 | a job of eight ranks has all soft GPUs; it lost one and waited, as it should, for one that it cannot be given | the soak draws no such fault (`test_no_gpu_is_awaited_that_a_job_cannot_be_given`) |

## What grows in the long job

The second half of stretch 3 still grew, by 61 MB per hour of memory objects. A job like it had 60
faults of all kinds but the agent's death, in 695 steps. Each object was measured after every ten
faults, and the agent's memory by line. In a second job the agent was killed as well. A third one
made 3,500 steps without a fault.

| what | grows | until |
|---|---|---|
| arena of the log | 2793 bytes a step, in each rank: what a cut says is live (`CutScope`) | `PYFT_ARENA_MB`, 256 MB; then it is written over |
| object log | 68 bytes a step, in each rank: entries of events that have ended | `PYFT_OBJECT_LOG_MB`, 1024 MB; what lives is copied behind the dead, whose room is used again after a whole turn |
| ring, journal, control page, bounce buffer | nothing | they have their sizes from the first minute on |
| records of collectives, in the store | 10.5 kB a step without faults, in each rank; with them 2 MB, from 20 faults to 60 | 1 GiB for each communicator; then they are written over |
| tables, journal and heap of the store | nothing | the most that was needed between two snapshots |
| flexccl's memory | comes and goes, 20 to 770 kB | it belongs to a connection |
| the agent's note of faults | 0.8 kB a fault | 1024 faults; it had no end |
| what the agent has of each fault | 2.5 kB a fault | 1024 faults; it had no end |
| requests for faults | 0.3 kB each | 1024 |
| descriptors of an agent that took over | 26, then 28 with the servers that stand by; one more for each rank whose server was replaced for the first time | 30; it is 28 since |
| other descriptors | nothing: agent 28, supervisor 36, launcher 6, clients 20 and 9 | |

Nothing else grows with faults. The 61 MB are the arenas: stretch 3 made 24,000 steps in 110
minutes, which is 36 MB per hour and rank. A client maps its arena: its 30 MB per hour are the same
bytes. A new server maps objects that are there, and looks at their pages one by one: that is its
*shared*. In stretch 3 servers lived for 46 s, in which 113 MB per hour are 1.4 MB.

The agents' own memory is what each takes in its first minutes. One begins with 17.8 MB. Without
faults nothing is added from step 700 to 3,500. With faults its heap took 11 to 15 kB for each of
the first 60. Of that 2.7 kB stay, and the texts of the note pass through the rest. In stretch 3
agents lived for four minutes, in which 1.4 MB per hour are 92 kB.

Stretch 4 has what was mended since. No process has more descriptors, and of 360 orders none was
refused or late. In its second half memory objects grow by 43 MB per hour. They were not taken apart
again. Arenas have 16 MB there, so records and object logs are left.
"""


def cells(*values: Any) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(str(value).replace("|", "\\|") for value in values) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a table, or a line that says that there is nothing."""
    return [cells(*head), "|" + "---|" * len(head), *(cells(*row) for row in rows)]


def duration(seconds: float) -> str:
    """Return hours and minutes."""
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02}"


def load(values: Sequence[float]) -> str:
    """Return the least, the median and the greatest."""
    values = sorted(values) or [0.0]
    return f"{values[0]:.0f} to {values[-1]:.0f}, median {values[len(values) // 2]:.0f}"


def stretches(all_: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return when it ran, and beside which load."""
    rows = [
        (
            one["began"],
            one["seed"],
            duration(one["seconds"]),
            len(one["runs"]),
            load(one["loads"]),
            "yes" if one["whole"] else "no: it was ended before",
        )
        for one in all_
    ]
    total = sum(one["seconds"] for one in all_)
    runs = sum(len(one["runs"]) for one in all_)
    cores = {one["cores"] for one in all_}
    return [
        "## How long it ran",
        "",
        f"**{duration(total)} hours** in {len(all_)} stretches, {runs} runs, on "
        f"{' or '.join(map(str, sorted(cores)))} cores.",
        "Load is that of the whole machine, on average over a minute, others' work included.",
        "",
        *table(("began (UTC)", "seed", "h:mm", "runs", "load", "to its end"), rows),
    ]


def by_kind(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what came of the runs that each kind was part of."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for run in runs:
        for kind in set(run["kinds"]):
            counts[kind][run["outcome"]] += 1
    rows = [
        (f"`{kind}`", sum(found.values()), *(found[o] or "" for o in OUTCOMES))
        for kind, found in sorted(counts.items())
    ]
    totals = Counter(run["outcome"] for run in runs)
    rows.append(("**all runs**", len(runs), *(f"**{totals[o]}**" for o in OUTCOMES)))
    return [
        "## By kind of disturbance",
        "",
        "A run with several kinds is in each of their rows. `at PLACE` is a death at a",
        "[fault point](../fault-points.md). `few …` is a limit of these that is near the need.",
        "",
        *table(("kind", "runs", *OUTCOMES), rows),
    ]


def by_class(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what became of the faults that agents saw."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for run in runs:
        for name, found in run["classes"].items():
            counts[name].update(found)
    rows = [
        (f"`{name}`", sum(found.values()), *(found[o] or "" for o in RECOVERIES))
        for name, found in sorted(counts.items())
    ]
    return [
        "## By class of fault",
        "",
        "What the reports of these runs say. *Failed again* is a recovery that another fault met, and",
        "the next row goes on from there. *Given up* is in the table of reasons. A run that ended",
        "with its supervisor or launcher has no report.",
        "",
        *table(("class", "faults", *RECOVERIES), rows),
    ]


def reasons(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why runs ended, and what was bad."""
    found = Counter(
        (run["outcome"], run["reason"], run["family"])
        for run in runs
        if run["outcome"] in ("ended", "bad", "wrong bits")
    )
    rows = [
        (outcome, family, f"`{reason[:LONGEST]}`" if reason else "", count)
        for (outcome, reason, family), count in sorted(found.items(), key=lambda one: -one[1])
    ]
    return ["## Reasons", "", *table(("outcome", "family", "what was said", "runs"), rows)]


def pressed(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what came of loads from outside."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for run in runs:
        words = [word[5:] for word in run["what"].split() if word.startswith("load=")]
        counts[words[0] if words else "none"][run["outcome"]] += 1
    rows = [(name, *(found[o] or "" for o in OUTCOMES)) for name, found in sorted(counts.items())]
    return ["## Load from outside", "", *table(("load", *OUTCOMES), rows)]


def endurance(all_: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the long jobs were told, and how they grew."""
    seen = [one["endurance"] for one in all_ if one["endurance"]]
    given: Counter = Counter()
    refused: Counter = Counter()
    late: Counter = Counter()
    for one in seen:
        given.update(one["given"])
        refused.update(one["refused"])
        late.update(one["late"])
    equal = sum(one["bits"] == "equal" for one in seen)
    wrong = sum(one["bits"] == "wrong" for one in seen)
    compared = sum(one["compared"] for one in seen)
    rows = [
        (
            number,
            role,
            row["lives"],
            row["minutes"],
            row.get("kilobytes", ""),
            row.get("shared", ""),
            row.get("descriptors", row.get("objects", "")),
        )
        for number, one in enumerate(seen, 1)
        for role, row in one["growth"].items()
    ]
    words, slow = (
        ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
        for found in (given, late)
    )
    head = ("stretch", "process", "lives", "minutes", "own kB/h", "shared kB/h", "descriptors/h")
    return [
        "## The long job",
        "",
        *textwrap.wrap(
            f"Two ranks train in each stretch, and are disturbed every 8 to 25 s. So far: "
            f"{words or 'nothing yet'}.",
            WIDTH,
        ),
        f"Refused orders: {sum(refused.values())}. "
        f"Orders without a recovery within 90 s: {slow or 'none'}.",
        f"Equal bits in {equal} of {len(seen)} stretches ({compared} lines), wrong in {wrong};",
        "the rest was not compared.",
        "",
        "Growth per hour is the slope that all lives of a process have in common, 20 s after the start",
        "of each. *Shared* is what a process has mapped, of memory objects what all have; their last",
        "column counts objects.",
        "",
        *table(head, rows),
    ]


def page(all_: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of all stretches."""
    runs = [run for one in all_ for run in one["runs"]]
    parts = [stretches(all_), by_kind(runs), by_class(runs), reasons(runs), pressed(runs)]
    parts.append(endurance(all_))
    return HEAD + "\n" + "\n\n".join("\n".join(part) for part in parts) + "\n" + TAIL


def main() -> None:
    if len(sys.argv) > 1:
        shutil.copy(sys.argv[1], DATA)
    PAGE.write_text(page(json.loads(DATA.read_text())["stretches"]) + FOUND)


if __name__ == "__main__":
    main()
