"""`torch.distributed.checkpoint.async_save`, the library as it is.

Its thread uses collectives of its own, so it gets a process group of its own: in that of the
training the two would meet in another order on each rank, and wait for each other for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyft_lab.api import STORAGE, Mechanism

WHOLE = ".metadata"  # is written last


class DcpAsync(Mechanism):
    """All ranks write their shares in the background; a new save waits for the one before."""

    name = "dcp-async"
    resizes = True
    writes = True
    survives = ("rank-kill", "gpu-lost", "sticky", "ecc", *STORAGE)  # its files have no digests

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        import torch.distributed as dist

        super().__init__(folder, rank, interval)
        self.group, self.saving = dist.new_group(backend="gloo"), None

    def restore(self, state: Any) -> None:
        import torch.distributed.checkpoint as dcp

        whole = sorted(path.parent for path in self.folder.glob(f"step-*/{WHOLE}"))
        if whole:
            packed = state.pack()
            dcp.load(packed, checkpoint_id=whole[-1], process_group=self.group)
            state.unpack(packed)

    def save(self, state: Any) -> None:
        import torch.distributed.checkpoint as dcp

        self.wait()
        folder = self.folder / f"step-{state.step:06d}"
        self.saving = dcp.async_save(state.pack(), checkpoint_id=folder, process_group=self.group)

    def wait(self) -> None:
        if self.saving is not None:
            self.saving.result()

    def close(self, state: Any) -> None:
        self.wait()
