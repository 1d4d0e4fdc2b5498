"""The clients of a job that have ended, as meta.json tells of them, kept for the next agent.

A job may have thousands, one after the other. So each is put into words once. A note cannot be
added to, only made anew: there are several, none longer than the one before it, and the last one is
short. Two of the same length become one.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

NOTE = "ended-"
SHORT = 16  # clients in a note that gets more
Keep = Callable[[str, dict[str, Any]], None]


class EndedClients:
    """`keep` keeps a note under a name for the next agent, `drop` does no longer."""

    def __init__(self, keep: Keep, drop: Callable[[str], None]) -> None:
        self._keep, self._drop = keep, drop
        self._texts: dict[int, str] = {}  # by the client's id
        self._notes: list[list[int]] = []  # ids in each

    def add(self, entry: dict[str, Any]) -> None:
        """Take the entry of one more."""
        id = int(entry["id"])
        self._texts[id] = textwrap.indent(json.dumps(entry, indent=1), "  ")
        if not self._notes or len(self._notes[-1]) >= SHORT:
            self._put_together()
            self._notes.append([])
        self._notes[-1].append(id)
        self._keep_last()

    def forget(self, ids: set[int]) -> None:
        """Do without some: they live again, from an image."""
        names = self._names()
        left = [id for id in self._texts if id not in ids]
        self._texts = {id: self._texts[id] for id in left}
        self._notes = [left]
        self._keep_last()
        for name in names[1:]:
            self._drop(name)

    def adopt(self, notes: Mapping[str, dict[str, Any]]) -> None:
        """Go on from the notes of the agent before, which may have died while it made one of two."""
        mine = {int(name.removeprefix(NOTE)): name for name in notes if name.startswith(NOTE)}
        for at, name in sorted(mine.items()):
            if at < len(self._texts):  # the one before it has all of this
                self._drop(name)
                continue
            found = [(id, text) for id, text in notes[name]["clients"]]
            self._texts |= found
            self._notes.append([id for id, _ in found])

    def text(self) -> str:
        """Return all entries, the oldest first, as the items of a list of meta.json."""
        return ",\n".join(self._texts.values())

    def _names(self) -> list[str]:
        """Return those of all notes: how many clients are in the notes before each."""
        return [f"{NOTE}{at}" for at in accumulate(map(len, self._notes[:-1]), initial=0)]

    def _keep_last(self) -> None:
        clients = [(id, self._texts[id]) for id in self._notes[-1]]
        self._keep(self._names()[-1], {"clients": clients})

    def _put_together(self) -> None:
        names, before = self._names(), len(self._notes)
        while len(self._notes) > 1 and len(self._notes[-2]) <= len(self._notes[-1]):
            last = self._notes.pop()
            self._notes[-1] += last
        if len(self._notes) < before:
            self._keep_last()
        for name in names[len(self._notes) :]:
            self._drop(name)


def ids_in(notes: Mapping[str, dict[str, Any]]) -> set[int]:
    """Return which clients have ended, say the notes of the agent before."""
    mine = (note for name, note in notes.items() if name.startswith(NOTE))
    return {id for note in mine for id, _ in note["clients"]}
