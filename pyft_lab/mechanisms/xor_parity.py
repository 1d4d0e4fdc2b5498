"""Checkpoints in memory with parity: one rank's memory can be lost, at less than a copy (REFT).

The state of each rank is cut in as many parts as there are other ranks. Rank k keeps the exclusive or
of one part of each of them. What a lost rank had follows from what the others have.
"""

from __future__ import annotations

from typing import Any

from pyft_lab.mechanisms.memory import packed_bytes, unpack_bytes
from pyft_lab.mechanisms.peers import Peers

SIZE = 8  # bytes in front of a state that say how long it is: it is filled up


class XorParity(Peers):
    """Each rank keeps its own state, and parity of the others'."""

    name = "xor-parity"

    def combined(self, data: bytes, parity: bytes) -> Any:
        """Return the exclusive or over ranks: a row per rank, for which its own gives parity."""
        import torch
        import torch.distributed as dist

        length = torch.tensor(max(-(-len(data) // (self.world - 1)), len(parity)))
        dist.all_reduce(length, op=dist.ReduceOp.MAX, group=self.group)
        part = int(length)
        rows = torch.zeros(self.world, part, dtype=torch.uint8)
        filled = bytearray(data.ljust(part * (self.world - 1), b"\0"))
        mine = torch.tensor([rank != self.rank for rank in range(self.world)])
        rows[mine] = torch.frombuffer(filled, dtype=torch.uint8).view(-1, part)
        rows[self.rank] = torch.frombuffer(bytearray(parity.ljust(part, b"\0")), dtype=torch.uint8)
        dist.all_reduce(rows, op=dist.ReduceOp.BXOR, group=self.group)
        return rows

    def restore(self, state: Any) -> None:
        own, parities = self.kept(self.own), self.kept(self.others)
        told = self.all_steps(own, parities)
        for step in sorted(set.union(*(one | other for one, other in told)), reverse=True):
            lacking = [r for r, (one, other) in enumerate(told) if step not in one & other]
            if len(lacking) > 1:
                continue
            data = own.get(step, b"")
            if lacking:
                lost = self.rank in lacking
                rows = self.combined(b"" if lost else data, b"" if lost else parities[step])
                data = data or b"".join(
                    rows[r].numpy().tobytes() for r in range(self.world) if r != self.rank
                )
            unpack_bytes(state, data[SIZE:][: int.from_bytes(data[:SIZE], "little")])
            if lacking:
                self.save(state)  # the next loss finds all whole
            return

    def save(self, state: Any) -> None:
        packed = packed_bytes(state)
        data = len(packed).to_bytes(SIZE, "little") + packed
        parity = self.combined(data, b"")[self.rank].numpy().tobytes()
        self.keep(self.own, state.step, data)
        self.keep(self.others, state.step, parity)
