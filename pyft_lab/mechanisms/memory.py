"""Checkpoints in memory: each rank keeps its own state in its host, in two places in turn.

The memory belongs to the job's launcher, so it outlives the rank and not the host (Gemini, REFT).
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from pyft_lab.api import Mechanism

NONE = -1  # the step of a place that has nothing whole


def write_place(place: Path, step: int, data: bytes) -> None:
    """Write the digest first: what is half written does not have it."""
    head = f"{step} {hashlib.sha256(data).hexdigest()}\n".encode()
    with place.open("r+b") as file:
        file.truncate(0)
        file.write(head + data)


def read_place(place: Path) -> tuple[int, bytes]:
    """Return the step of what is there and its data, or NONE."""
    head, _, data = place.read_bytes().partition(b"\n")
    step, _, digest = head.decode(errors="replace").partition(" ")
    whole = hashlib.sha256(data).hexdigest() == digest
    return (int(step), data) if whole else (NONE, b"")


def packed_bytes(state: Any) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(state.pack(), buffer)
    return buffer.getvalue()


def unpack_bytes(state: Any, data: bytes) -> None:
    import torch

    state.unpack(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))


class Memory(Mechanism):
    """Each rank keeps its state in memory of its host; no file is written."""

    name = "memory"
    places = 2

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        super().__init__(folder, rank, interval)
        memory = json.loads((folder.parent / "memory.json").read_text())
        self.own = [Path(path) for path in memory[rank]]

    def kept(self, places: list[Path]) -> dict[int, bytes]:
        """Return what places have, by step."""
        return {step: data for step, data in map(read_place, places) if step != NONE}

    def keep(self, places: list[Path], step: int, data: bytes) -> None:
        """Keep data of a step, in the place whose turn it is."""
        write_place(places[step // self.interval % len(places)], step, data)

    def restore(self, state: Any) -> None:
        import torch
        import torch.distributed as dist

        kept = self.kept(self.own)
        # A rank may be one checkpoint ahead of another: all take the newest that each of them has.
        newest = torch.tensor(max(kept, default=NONE), device=state.device)
        dist.all_reduce(newest, op=dist.ReduceOp.MIN)
        if (step := int(newest.item())) != NONE:
            unpack_bytes(state, kept[step])

    def save(self, state: Any) -> None:
        self.keep(self.own, state.step, packed_bytes(state))
