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


class Memory(Mechanism):
    """Each rank keeps its state in memory of its host; no file is written."""

    name = "memory"
    places = 2

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        super().__init__(folder, rank, interval)
        memory = json.loads((folder.parent / "memory.json").read_text())
        self.own = [Path(path) for path in memory[rank]]

    def restore(self, state: Any) -> None:
        import torch
        import torch.distributed as dist

        kept = dict(read_place(place) for place in self.own)
        # A rank may be one checkpoint ahead of another: all take the newest that each of them has.
        newest = torch.tensor(max(kept), device=state.device)
        dist.all_reduce(newest, op=dist.ReduceOp.MIN)
        step = int(newest.item())
        if step != NONE:
            data = io.BytesIO(kept[step])
            state.unpack(torch.load(data, weights_only=True, map_location="cpu"))

    def save(self, state: Any) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(state.pack(), buffer)
        place = self.own[state.step // self.interval % len(self.own)]
        write_place(place, state.step, buffer.getvalue())
