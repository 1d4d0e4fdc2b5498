"""Faults on request: `KIND,rank=R[,step=S][,call=C][,seed=N]`, for `pyft run --inject` and `pyft inject`.

Kinds, and the points of PYFT_FAULT, are those of faults.toml.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from pyft.errors import ConfigError, UsageError
from pyft.recovery.fault_table import KINDS as WORDS
from pyft.recovery.fault_table import POINTS, SEEDED

KINDS = tuple(WORDS)


@dataclass(frozen=True)
class Injection:
    """One fault, which happens once in a job."""

    kind: str
    rank: int = 0
    step: int = -1  # after this cut; -1: not asked for
    call: int = 0  # before this entry after the cut, or at this launch, from 1; 0: not asked for
    server: int = 1  # of the rank: 1 is the first, 2 the first replacement
    seed: int = -1  # of the place that is drawn; -1: not asked for

    @property
    def has_place(self) -> bool:
        """Say whether a place in the program is asked for; otherwise it happens at once."""
        return self.step >= 0 or self.call > 0

    def place(self) -> str:
        """Return where, as the server reads it."""
        return f"kill:{max(self.call, 1)},cut={max(self.step, 0)}"

    @property
    def by_server(self) -> bool:
        """Say whether the server finds the place itself, exactly; the agent looks for others."""
        return self.kind == "server-kill" and self.has_place

    def words(self, device: int, number: int) -> str:
        """Return what, as the soft GPU reads it; its device numbers are the program's.

        `number`: of the byte in which it notes that it has happened.
        """
        words = WORDS[self.kind]
        if self.kind in ("server-kill", "comm-drop"):
            return words
        place = f",in={self.call}" if self.call else ""
        seed = f",seed={self.seed}" if self.seed >= 0 else ""
        return f"{words},device={device}{place}{seed},note={number}"

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        parts = [self.kind, f"rank={self.rank}"]
        parts += [f"step={self.step}"] if self.step >= 0 else []
        parts += [f"call={self.call}"] if self.call else []
        parts += [f"server={self.server}"] if self.server != 1 else []
        parts += [f"seed={self.seed}"] if self.seed >= 0 else []
        return ",".join(parts)


def parse(text: str, rank: int | None = None) -> Injection:
    """Read one fault; `rank` is for texts that do not name it. Raise UsageError at what is wrong."""
    kind, *settings = text.split(",")
    if kind not in WORDS:
        raise UsageError(f"fault kind [{kind}] does not exist: there are {', '.join(KINDS)}")
    values = {} if rank is None else {"rank": rank}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in ("rank", "step", "call", "server", "seed"):
            raise UsageError(
                f"[{setting}] in fault [{text}] is not rank=, step=, call=, server= or seed="
            )
        if not value.isdecimal() or len(value) > 9:
            raise UsageError(f"[{setting}] in fault [{text}] is no number")
        values[name] = int(value)
    if "rank" not in values:
        raise UsageError(f"fault [{text}] does not say which rank: add rank=R")
    if values.get("call") == 0 or values.get("server") == 0:
        raise UsageError(f"fault [{text}]: call= and server= count from 1")
    if "seed" in values and kind not in SEEDED:
        raise UsageError(f"fault [{text}]: seed= is for {', '.join(SEEDED)}")
    return Injection(kind, **values)


def parse_order(text: str, rank: int | None = None) -> Injection:
    """Read a fault for a job that runs; raise UsageError also at what an order cannot ask for.

    `rank`: which one is meant; the text may name it again, but no other one.
    """
    found = parse(text, rank)
    if rank is not None and found.rank != rank:
        raise UsageError(f"fault [{text}] and rank=[{rank}] name different ranks")
    if any(setting.startswith("server=") for setting in text.split(",")[1:]):
        raise UsageError(
            f"fault [{text}]: server= is for --inject; an order is for the present one"
        )
    return found


def check_point(text: str) -> None:
    """Raise ConfigError for what is no value of PYFT_FAULT: `NAME[:N]`, or nothing."""
    name, colon, number = text.partition(":")
    if not text:
        return
    if colon and not (number.isdecimal() and int(number) > 0):
        raise ConfigError(f"PYFT_FAULT is [{text}]: [{number}] is no number from 1")
    if re.sub(r"\.\d+$", ".R", name) not in POINTS:
        near = difflib.get_close_matches(name, POINTS, n=1)
        hint = f"; did you mean [{near[0]}]?" if near else ""
        raise ConfigError(
            f"PYFT_FAULT is [{text}]: there is no fault point [{name}] "
            f"(docs/fault-points.md lists them){hint}"
        )
