"""A disagreement of replicas (replicas.py): which ranks are suspected, and what their replays say.

A rank that had what its replay does not give was changed silently. Without input or output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[int, int]  # offset in the window, bytes
Table = dict[Key, bytes]  # digests
UNSETTLED = 1 << 63  # no optimizer names what a block holds, and it has not been there for long


@dataclass(frozen=True)
class Contents:
    """What a rank has at a cut: digests, and which blocks have changed hands."""

    table: Table = field(default_factory=dict)
    entry: int = 0  # of the cut
    # At which entry it was first seen that a block holds what it holds, or UNSETTLED. Others: it
    # always has.
    since: Mapping[Key, int] = field(default_factory=dict)


@dataclass
class Case:
    """A disagreement that replays decide."""

    cut: int
    key: Key
    suspects: tuple[int, ...]
    keys: set[Key]  # all that differ
    first: dict[int, Table]  # what each suspect had there
    replaying: set[int] = field(default_factory=set)  # by a server started for this
    answers: dict[int, bool | None] = field(default_factory=dict)  # True: it had other contents

    @classmethod
    def of(cls, cut: int, differing: Mapping[Key, Mapping[int, bytes]]) -> Case:
        """Suspect the ranks that are not in the majority: all where there is none."""
        suspects: set[int] = set()
        for contents in differing.values():
            digest, votes = Counter(contents.values()).most_common(1)[0]
            majority = votes * 2 > len(contents)
            suspects |= {one for one in contents if not majority or contents[one] != digest}
        first = {
            one: {key: contents[one] for key, contents in differing.items() if one in contents}
            for one in suspects
        }
        return cls(cut, min(differing), tuple(sorted(suspects)), set(differing), first)

    def waits_for(self, id: int) -> bool:
        """Say whether the replay of a rank has still to answer."""
        return id in self.suspects and id not in self.answers

    def take(self, id: int, table: Table) -> bool:
        """Take what a suspect's replay gives; say whether all have answered.

        Blocks that are not in the table say nothing.
        """
        differs = [table[key] != was for key, was in self.first[id].items() if key in table]
        self.answers[id] = any(differs) if differs else None
        return len(self.answers) == len(self.suspects)

    def verdict(self) -> tuple[tuple[int, ...], bool]:
        """Return the ranks whose replays give other contents, and whether that could be told."""
        culprits = tuple(one for one in self.suspects if self.answers[one])
        told = bool(culprits) or None not in self.answers.values()
        if len(culprits) == len(self.suspects) > 1:
            culprits = ()  # where no replay gives what was there, kernels are not deterministic
        return culprits, told

    def unheeded(self) -> tuple[int, ...]:
        """Return the suspects whose servers have not been ended yet."""
        return tuple(id for id in self.suspects if id not in self.replaying | set(self.answers))

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return all of it, in plain values."""
        return {
            "cut": self.cut,
            "key": self.key,
            "suspects": self.suspects,
            "keys": sorted(self.keys),
            "first": [
                [id, [[*key, digest.hex()] for key, digest in sorted(table.items())]]
                for id, table in sorted(self.first.items())
            ],
            "replaying": sorted(self.replaying),
            "answers": sorted(self.answers.items()),
        }

    @classmethod
    def restored(cls, note: Mapping[str, Any]) -> Case:
        """Go on from the note of an agent before this one."""
        (key,) = keys_of([note["key"]])
        first = {
            id: {(offset, size): bytes.fromhex(text) for offset, size, text in rows}
            for id, rows in note["first"]
        }
        suspects, keys = tuple(note["suspects"]), keys_of(note["keys"])
        answered = (set(note["replaying"]), dict(note["answers"]))
        return cls(note["cut"], key, suspects, keys, first, *answered)


def keys_of(pairs: Iterable[Sequence[int]]) -> set[Key]:
    """Return blocks that a note names."""
    return {(offset, size) for offset, size in pairs}
