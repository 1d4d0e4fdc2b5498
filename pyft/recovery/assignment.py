"""Shard assignment: which replica keeps a block that several ranks have. Without input or output.

With `jit` no store keeps such a block: all that have it keep it in their GPUs, and each rank's row
names the next one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from pyft.recovery.case import Key

Rows = dict[Key, int]  # of a rank: which blocks others keep for it, and which rank does
Shared = tuple[Key, set[int]]  # a block, and the ranks that have it


class Assignment:
    """The rows of all ranks, by id."""

    def __init__(self, least_bytes: int = 1, jit: bool = False) -> None:
        self.rows: dict[int, Rows] = {}
        self.stale: set[int] = set()  # ranks of which is not known what they go by
        self._least_bytes = least_bytes
        self._jit = jit
        self._owner: dict[tuple[Key, int], int] = {}  # by block and a rank that has it

    def shared(self, holders: Iterable[Shared], apart: Set[Key]) -> list[Shared]:
        """Return the blocks worth dividing, the largest first. `apart`: those that are not the same."""
        ordered = sorted(holders, key=lambda one: (-one[0][1], one[0][0], min(one[1])))
        return [
            (key, ids)
            for key, ids in ordered
            if len(ids) > 1 and key[1] >= self._least_bytes and key not in apart
        ]

    def divide(self, shared: Sequence[Shared]) -> dict[int, Rows]:
        """Divide blocks among the ranks that have them; return the rows that change.

        An owner stays one while it has the block, so that few cuts meet another plan at another rank.
        """
        rows = self._next_ones(shared) if self._jit else self._owners(shared)
        changed = {
            id: rows.get(id, {})
            for id in self.rows.keys() | rows.keys() | self.stale
            if id in self.stale or rows.get(id, {}) != self.rows.get(id, {})
        }
        self.rows, self.stale = rows, set()
        return changed

    def _next_ones(self, shared: Sequence[Shared]) -> dict[int, Rows]:
        rows: dict[int, Rows] = {}
        for key, ids in shared:
            ring = sorted(ids)
            for id, other in zip(ring, ring[1:] + ring[:1], strict=True):
                rows.setdefault(id, {})[key] = other
        return rows

    def _owners(self, shared: Sequence[Shared]) -> dict[int, Rows]:
        load: Counter[int] = Counter()
        rows: dict[int, Rows] = {}
        owners: dict[tuple[Key, int], int] = {}
        for key, ids in shared:
            before = {self._owner.get((key, id)) for id in ids} & ids
            owner = min(before or ids, key=lambda id: (load[id], id))
            load[owner] += key[1]
            for id in ids:
                owners[key, id] = owner
                if id != owner:
                    rows.setdefault(id, {})[key] = owner
        self._owner = owners
        return rows
