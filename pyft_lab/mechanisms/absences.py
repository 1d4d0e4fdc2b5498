"""A run in which ranks are away by plan: what one must equal that went on without some of them.

It uses collectives of PyTorch only, and nothing fails in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyft_lab.api import AWAY, Mechanism


class Absences(Mechanism):
    """Ranks are away in the steps that the cell names, and get the state of a peer after them."""

    name = "absences"

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        super().__init__(folder, rank, interval)
        import torch.distributed as dist

        cell = json.loads((folder.parent / "cell.json").read_text())
        self.steps, self.events = cell["steps"], cell["faults"]
        self.groups: dict[tuple[int, ...], Any] = {}
        self.met = 0  # the last step at whose beginning the state was given on
        for step in range(self.steps + 1):
            if (there := self.there(step)) not in self.groups:
                self.groups[there] = dist.new_group(there, backend="gloo")

    def there(self, step: int) -> tuple[int, ...]:
        """Return the ranks that take part in a step."""
        away = set()
        for event in self.events:  # in the order of steps
            if event["step"] <= step:
                (away.add if event["kind"] == AWAY else away.discard)(event["rank"])
        return tuple(rank for rank in range(self.world_size()) if rank not in away)

    def begin_step(self, state: Any) -> None:
        import torch.distributed as dist

        while self.rank not in self.there(state.step):
            state.step += 1
        there = self.there(state.step)
        before = self.there(state.step - 1) if state.step else there
        if {*there} - {*before} and self.met < state.step:
            self.met = state.step
            packed = [state.pack() if self.rank in before else None]
            source = next(rank for rank in there if rank in before)
            dist.broadcast_object_list(packed, src=source, group=self.groups[there])
            if self.rank not in before:
                state.unpack(packed[0])
        self.present = list(there)

    def average(self, gradients: Sequence[Any], halfway: Callable[[], None]) -> None:
        import torch.distributed as dist

        assert self.present is not None
        for gradient in gradients:
            dist.all_reduce(gradient, group=self.groups[tuple(self.present)])
            gradient /= len(self.present)

    def close(self, state: Any) -> None:
        self.begin_step(state)
