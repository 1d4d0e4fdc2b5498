"""torchft: replica groups of one rank each, which go on without one that is lost.

Its lighthouse runs beside the ranks: `python -m pyft_lab.mechanisms.torchft MS CELL_FOLDER`. Each
rank has a manager. A rank that is started anew gets the state from a living one; meanwhile the others
train with their own shares of the batch, so its share is left out, and the mean is another one.

The quorum is not asked for beside the forward pass, as torchft would by default: the state that a
peer gives has the generator in it, which dropout uses there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyft_lab.api import Mechanism

ADDRESS = "lighthouse"  # a file in the cell's folder
POLL_S = 0.05
HEARTBEAT_MS = 5000  # without a sign of a rank, until it counts as lost; as torchft has it
TIMEOUT = timedelta(seconds=60)  # of torchft's calls, as it has it by default


class Torchft(Mechanism):
    """A rank that is there trains on; one that comes back gets the state of a peer."""

    name = "torchft"
    substrates = ("cpu",)
    survives = ("rank-kill",)
    one_by_one = True
    service = ("-m", "pyft_lab.mechanisms.torchft", str(HEARTBEAT_MS))
    needs = ("torchft",)

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        super().__init__(folder, rank, interval)
        from torch.distributed import TCPStore

        self.present, self.ranks = [], int(os.environ["WORLD_SIZE"])
        self.store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        while not (self.folder.parent / ADDRESS).exists():
            time.sleep(POLL_S)

    def world_size(self) -> int:
        return self.ranks

    def restore(self, state: Any) -> None:
        from torchft import Manager, ProcessGroupGloo

        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=1, timeout=TIMEOUT,
            load_state_dict=state.unpack, state_dict=state.pack,
            use_async_quorum=False, init_sync=False,  # all ranks begin with the same state
            replica_id=str(self.rank), rank=0, world_size=1, hostname="localhost",
            store_addr="localhost", store_port=self.store.port,
            lighthouse_addr=(self.folder.parent / ADDRESS).read_text(),
        )  # fmt: skip

    def call_roll(self) -> None:
        """Ask for a quorum, and learn which are in it; a rank that was away has the state then."""
        import torch
        from torch.distributed import ReduceOp

        while True:
            self.manager.start_quorum()
            there = torch.zeros(self.ranks)
            there[self.rank] = 1
            self.manager.allreduce(there, reduce_op=ReduceOp.SUM).wait()
            if self.manager.errored() is None:
                break
            self.manager.should_commit()  # it will not: so all of the group is set up anew
        self.present = there.nonzero().flatten().tolist()

    def begin_step(self, state: Any) -> None:
        import torch

        self.call_roll()
        while state.step == 0 and len(self.present) < self.ranks:  # none begins alone
            time.sleep(POLL_S)
            self.call_roll()
        self.before = (state.sampler.cursor, torch.get_rng_state())

    def average(self, gradients: Sequence[Any], halfway: Callable[[], None]) -> None:
        for number, gradient in enumerate(gradients):
            if number == len(gradients) // 2:
                halfway()
            self.manager.allreduce(gradient).wait()

    def commit(self, state: Any) -> bool:
        import torch

        if self.manager.should_commit():
            return True
        state.sampler.cursor, generator = self.before
        torch.set_rng_state(generator)
        return False

    def close(self, state: Any) -> None:
        while len(self.present) < self.ranks:  # one that comes late finds one that has the state
            time.sleep(POLL_S)
            self.call_roll()
        self.manager.shutdown(wait=False)


def lighthouse(folder: Path, heartbeat_ms: int) -> None:
    """Run a lighthouse until this process is ended."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="[::]:0", min_replicas=1, heartbeat_timeout_ms=heartbeat_ms)
    part = folder / f"{ADDRESS}.part"
    part.write_text(server.address())
    part.rename(folder / ADDRESS)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    lighthouse(Path(sys.argv[2]), int(sys.argv[1]))
