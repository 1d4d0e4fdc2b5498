"""Checkpoints in the memory of a peer: each rank keeps its own state, and that of the rank before.

So the loss of a rank with its memory costs what that of the rank alone does (Gemini).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyft_lab.mechanisms.memory import Memory, packed_bytes, unpack_bytes


def shift(data: bytes, by: int, group: Any) -> bytes:
    """Give bytes to the rank that is so many places on; return those of the rank behind."""
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()

    def shifted(given: Any, size: int) -> Any:
        taken = torch.empty(size, dtype=given.dtype)
        sending = dist.isend(given, (rank + by) % world, group=group)
        dist.recv(taken, (rank - by) % world, group=group)
        sending.wait()
        return taken

    size = int(shifted(torch.tensor([len(data)]), 1))
    padded = torch.frombuffer(bytearray(data + b"\0"), dtype=torch.uint8)  # none may be empty
    return shifted(padded, size + 1).numpy().tobytes()[:-1]


class Peers(Memory):
    """Each rank keeps its state in its own memory and in that of the next rank."""

    name = "peers"
    places = 4  # two of its own, two for others; in turn
    least_ranks = 2

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        import torch.distributed as dist

        super().__init__(folder, rank, interval)
        self.own, self.others = self.own[:2], self.own[2:]
        self.group, self.world = dist.new_group(backend="gloo"), dist.get_world_size()

    def all_steps(self, *kept: dict[int, bytes]) -> list[tuple[set[int], ...]]:
        """Return of which steps each rank has what."""
        import torch.distributed as dist

        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, tuple({*of} for of in kept), group=self.group)
        return told

    def restore(self, state: Any) -> None:
        own, others = self.kept(self.own), self.kept(self.others)
        told = self.all_steps(own, others)
        there = [told[r][0] | told[(r + 1) % self.world][1] for r in range(self.world)]
        if not (common := set.intersection(*there)):
            return
        step = max(common)
        given = shift(others.get(step, b""), -1, self.group)
        unpack_bytes(state, own.get(step, given))
        if any(step not in one or step not in other for one, other in told):
            self.save(state)  # the next loss finds all copies whole

    def save(self, state: Any) -> None:
        data = packed_bytes(state)
        self.keep(self.own, state.step, data)
        self.keep(self.others, state.step, shift(data, 1, self.group))
