"""The two libraries that `make bench-ccl` compares, behind the same few calls."""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist

from pyft import flexccl

TIMEOUT_S = 100


class Flexccl:
    """flexccl over one transport."""

    def __init__(self, transport: flexccl.Transport, unique_id: bytes) -> None:
        self.name = f"flexccl {transport.name.lower()}"
        self._transport, self._unique_id = transport, unique_id

    def join(self, rank: int, size: int) -> None:
        """Make the communicator."""
        flexccl.set_transport(self._transport)
        flexccl.set_timeout_ms(TIMEOUT_S * 1000)
        self._comm = flexccl.Communicator(self._unique_id, rank, size)

    def all_reduce(self, data: torch.Tensor) -> None:
        """Sum in place."""
        self._comm.all_reduce(data)

    def leave(self) -> None:
        """End the communicator."""
        self._comm.destroy()


class Gloo:
    """gloo, as PyTorch brings it, over loopback TCP."""

    name = "gloo"

    def __init__(self, port: int) -> None:
        self._port = port

    def join(self, rank: int, size: int) -> None:
        """Connect to the store and make the process group."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        self.store = dist.TCPStore("127.0.0.1", self._port, timeout=timeout)
        self.remake(rank, size, "first")

    def remake(self, rank: int, size: int, name: str) -> None:
        """Make a new group over the store that is there: gloo's re-init alone."""
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        store = dist.PrefixStore(name, self.store)
        self._group = dist.ProcessGroupGloo(store, rank, size, timeout)

    def all_reduce(self, data: torch.Tensor) -> None:
        """Sum in place."""
        self._group.allreduce([data]).wait()

    def leave(self) -> None:
        """Let go of the group, which closes its connections."""
        del self._group


def store() -> dist.TCPStore:
    """Start the store of gloo's ranks in this process, on a free port."""
    timeout = datetime.timedelta(seconds=TIMEOUT_S)
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
