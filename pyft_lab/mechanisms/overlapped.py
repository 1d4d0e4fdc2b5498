"""ECRL's overlapped checkpoint: rank 0 copies the state, and a thread writes it."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

from pyft_lab.mechanisms.blocking import Blocking
from pyft_lab.mechanisms.checkpoints import copy_to_host, write_checkpoint


class Overlapped(Blocking):
    """Rank 0 copies the state and a thread writes it; at most so many wait."""

    name = "overlapped"
    MAX_INFLIGHT = 2

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        super().__init__(folder, rank, interval)
        self.failed: OSError | None = None
        self.waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(self.MAX_INFLIGHT)
        self.writer = threading.Thread(target=self.write_all, daemon=True)
        self.writer.start()

    def write_all(self) -> None:
        while (packed := self.waiting.get()) is not None:
            try:
                if self.failed is None:
                    write_checkpoint(self.folder, packed)
            except OSError as error:
                self.failed = error

    def check(self) -> None:
        """Raise in the training's thread what went wrong in the other, or it would not be known."""
        if self.failed is not None:
            raise OSError("a checkpoint could not be written") from self.failed

    def save(self, state: Any) -> None:
        self.check()
        if self.rank == 0:
            self.waiting.put(copy_to_host(state.pack()))

    def close(self, state: Any) -> None:
        self.waiting.put(None)
        self.writer.join()
        self.check()
