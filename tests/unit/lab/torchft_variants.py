"""torchft with a fault in its middle, and variants of it that do something wrong.

So that what happens does not depend on how quick a machine is: the rank that comes back waits until
the other has trained alone, and the other waits for it some steps later.
"""

from __future__ import annotations

import json
import time
from typing import Any

from pyft_lab.mechanisms.torchft import POLL_S, Torchft

ALONE = 4  # steps without the other rank


class Honest(Torchft):
    name = "honest"

    def restore(self, state: Any) -> None:
        ranks = self.folder.parent / "ranks"
        (self.fault,) = json.loads((self.folder.parent / "cell.json").read_text())["faults"]
        other = ranks / f"{1 - self.rank}.jsonl"
        if (ranks / f"{self.rank}.jsonl").exists():
            while f'"with": [{1 - self.rank}]' not in other.read_text():
                time.sleep(POLL_S)
        super().restore(state)

    def begin_step(self, state: Any) -> None:
        super().begin_step(state)
        while state.step == self.fault["step"] + ALONE and len(self.present) < self.ranks:
            time.sleep(POLL_S)
            self.call_roll()


class OldOptimizer(Honest):
    """A rank that comes back has moments of its own."""

    name = "old-optimizer"

    def restore(self, state: Any) -> None:
        unpack = state.unpack

        def less(packed: dict[str, Any]) -> None:
            unpack(packed | {"optimizer": state.optimizer.state_dict()})

        state.unpack = less
        super().restore(state)


class OtherSamples(Honest):
    """A step that others did not do is done again with the next samples, not with its own."""

    name = "other-samples"

    def commit(self, state: Any) -> bool:
        cursor = state.sampler.cursor
        done = super().commit(state)
        state.sampler.cursor = cursor
        return done


class WrongMean(Honest):
    """Who is alone divides by all ranks."""

    name = "wrong-mean"

    def average(self, gradients: Any, halfway: Any) -> None:
        super().average(gradients, halfway)
        for gradient in gradients:
            gradient *= len(self.present) / self.ranks
