"""docs/endings.md, from what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from judge import NEAR_S, Ending
from ways import KNOWN, Way

HEAD = """\
# How jobs end

From `make test-endings ENDINGS="--page docs/endings.md"`, with PyTorch {torch} under torchrun, two
ranks on soft GPUs.

A job with servers ends as one without them (`--direct`). These are compared:

* the exit code;
* which rank fails first, and by which code or signal, as torchrun reports it;
* the messages;
* the time, which may differ by {near:.0f} s.

Both modes run side by side. A difference in the time, or in who fails first, can come from a busy
machine: it counts when it comes three times.
Nothing may be left behind, and no program may get the sum of a failed collective.
Seconds count from the event to the end of `pyft run`, on a busy machine with two cores.

| what happens | to | fails first | exit code | `--direct` | with servers |
|---|---|---|---|---|---|
"""
TAIL = """
## Whose seconds these are

The minute of an early exit and of a late rank is PyTorch's, in both modes.
Its watchdog waits for its own records to be written before it ends the process.
It waits four times `TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC`, which is 15 s.
Measured once with 1000 ms, an early exit took 10.3 s with `--direct` and 11.2 s with servers.
A late rank took 17.4 s and 18.9 s.

An early exit alone is no failure to torchrun: the rank that waits for it fails.

## Known differences

Any other difference fails the run. So does one of these that is not seen any more, unless it is a
race.

"""


def line(way: Way, found: Mapping[str, Ending]) -> str:
    """Return a row of the table."""
    to = way.victim or f"rank {way.rank}"
    codes = " or ".join(dict.fromkeys(str(one.code) for one in found.values()))
    first = " or ".join(dict.fromkeys(one.first or "none" for one in found.values()))
    seconds = " | ".join(f"{one.seconds} s" for one in found.values())
    return f"| {way.text} | {to} | {first} | {codes} | {seconds} |"


def bullet(text: str) -> str:
    """Return it as an item of a list."""
    return textwrap.fill(
        text,
        100,
        initial_indent="* ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def page(torch: str, rows: Sequence[str]) -> str:
    """Return all of it."""
    head = HEAD.format(torch=torch, near=NEAR_S)
    known = "\n".join(bullet(one.why) for one in KNOWN) or "None."
    return head + "\n".join(rows) + "\n" + TAIL + known + "\n"
