"""ECRL's blocking checkpoint: rank 0 writes while all wait."""

from __future__ import annotations

from typing import Any

from pyft_lab.api import Mechanism
from pyft_lab.mechanisms.checkpoints import read_checkpoint, write_checkpoint


class Blocking(Mechanism):
    """Rank 0 writes while all wait."""

    name = "blocking"
    resizes = True
    writes = True

    def restore(self, state: Any) -> None:
        packed = read_checkpoint(self.folder)
        if packed is not None:
            state.unpack(packed)

    def save(self, state: Any) -> None:
        import torch.distributed as dist

        if self.rank == 0:
            write_checkpoint(self.folder, state.pack())
        dist.barrier()
