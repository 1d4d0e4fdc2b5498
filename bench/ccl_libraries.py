"""The two libraries that `make bench-ccl` compares, behind the same few calls."""

from __future__ import annotations

import datetime
import os
import time

import torch
import torch.distributed as dist
from ccl_pool import Meter

from pyft import flexccl

TIMEOUT_S = 60
TIMEOUT = datetime.timedelta(seconds=TIMEOUT_S)
STAGGER_S = 0.04  # the store looks up each client's name: many at once take seconds


class Flexccl:
    """flexccl over one transport."""

    def __init__(self, transport: flexccl.Transport) -> None:
        self.name = f"flexccl {transport.name.lower()}"
        self._transport = transport

    def join(self, meter: Meter) -> None:
        """Make the communicator."""
        flexccl.set_transport(self._transport)
        flexccl.set_timeout_ms(TIMEOUT_S * 1000)
        unique_id = meter.from_first(flexccl.get_unique_id)
        self._comm = flexccl.Communicator(unique_id, meter.rank, meter.size)

    def all_reduce(self, data: torch.Tensor) -> None:
        """Sum in place."""
        self._comm.all_reduce(data)

    def leave(self) -> None:
        """End the communicator."""
        self._comm.destroy()


class Gloo:
    """gloo, as PyTorch brings it, over loopback TCP."""

    name = "gloo"

    def join(self, meter: Meter) -> None:
        """Connect to the store, which lives in rank 0, and make the process group."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        port = int(meter.from_first(self._start_store))
        if meter.rank != 0:
            time.sleep(meter.rank * STAGGER_S)
            self.store = dist.TCPStore("127.0.0.1", port, timeout=TIMEOUT)
        self.remake(meter.rank, meter.size, "first")

    def _start_store(self) -> bytes:
        self.store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT
        )
        return str(self.store.port).encode()

    def remake(self, rank: int, size: int, name: str) -> None:
        """Make a new group over the store that is there: gloo's re-init alone."""
        store = dist.PrefixStore(name, self.store)
        self._group = dist.ProcessGroupGloo(store, rank, size, TIMEOUT)

    def all_reduce(self, data: torch.Tensor) -> None:
        """Sum in place."""
        self._group.allreduce([data]).wait()

    def leave(self) -> None:
        """Let go of the group, which closes its connections."""
        del self._group
