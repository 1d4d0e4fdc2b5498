"""The collectives of a communicator.

Everywhere: buffers are NumPy arrays, CPU tensors or buffer objects (see buffers.py), contiguous;
counts are elements; N is the number of ranks. A call waits for its result, except inside `group()`
and with `wait=False`: then `synchronize()` says when it is there, and the buffers belong to the
library until then. Every call raises FlexcclError, with the library's sentence, for arguments that
cannot be, ranks that disagree, and peers that are gone; after an error of an operation the communicator can
only be aborted.
"""

from __future__ import annotations

from typing import Any

from pyft._native import flexccl as native
from pyft.flexccl.buffers import Buffer, describe
from pyft.flexccl.group import joins_group
from pyft.flexccl.settings import check
from pyft.flexccl.types import DataType, ReduceOp, refuse, scalar_bytes


class PreMulSum:
    """A sum of elements that are first multiplied by this rank's scalar."""

    def __init__(self, comm: Collectives, number: int, dtype: DataType) -> None:
        """Made by Communicator.pre_mul_sum."""
        self._comm, self.number, self.dtype = comm, number, dtype

    def destroy(self) -> None:
        """Free the operator; calls that were begun still use it."""
        check(native.call("ncclRedOpDestroy", self.number, self._comm.handle))


Op = ReduceOp | PreMulSum


def _number(op: Op) -> int:
    return op.number if isinstance(op, PreMulSum) else int(op)


def _writable(buffer: Buffer) -> Buffer:
    if not buffer.writable:
        raise refuse(f"a read-only [{type(buffer.owner).__name__}] cannot take a result")
    return buffer


def _sized(buffer: Buffer, count: int, what: str) -> Buffer:
    if buffer.count != count:
        raise refuse(f"{what} has [{buffer.count}] elements, not [{count}]")
    return buffer


def _parts(buffer: Buffer, parts: int, what: str) -> int:
    if buffer.count % parts:
        raise refuse(
            f"{what} has [{buffer.count}] elements, not one part for each of [{parts}] ranks"
        )
    return buffer.count // parts


class Collectives:
    """The operations; `Communicator` brings handle, rank, size, keep and synchronize."""

    handle: int
    rank: int
    size: int

    def keep(self, *buffers: Any) -> None:
        """Keep arguments alive until the operation is done."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for everything begun."""
        raise NotImplementedError

    def _begin(self, name: str, wait: bool, *arguments: Any, buffers: tuple[Buffer, ...]) -> None:
        check(native.call(name, *arguments, self.handle, None), self.handle)
        owners = [buffer.owner for buffer in buffers]
        if joins_group(self, owners):
            return
        self.keep(*owners)
        if wait:
            self.synchronize()

    def _pair(self, send: Any, recv: Any, dtype: DataType | None) -> tuple[Buffer, Buffer]:
        """Describe both buffers; without a send buffer the call works in place."""
        into = _writable(describe(recv, dtype))
        source = into if send is None else describe(send, dtype)
        if source.dtype is not into.dtype:
            raise refuse(f"send has type [{source.dtype.name}], recv [{into.dtype.name}]")
        return source, into

    def all_reduce(
        self,
        recv: Any,
        send: Any = None,
        op: Op = ReduceOp.SUM,
        *,
        dtype: DataType | None = None,
        wait: bool = True,
    ) -> None:
        """Reduce `send` (in place: `recv`) of all ranks into the `recv` of each, of the same size."""
        source, into = self._pair(send, recv, dtype)
        _sized(source, into.count, "send")
        call = (source.address, into.address, into.count, int(into.dtype), _number(op))
        self._begin("ncclAllReduce", wait, *call, buffers=(source, into))

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        op: Op = ReduceOp.SUM,
        *,
        dtype: DataType | None = None,
        wait: bool = True,
    ) -> None:
        """Reduce `send` of all ranks into `recv` of the root; others pass no `recv`."""
        source = describe(send, dtype)
        into = source if recv is None else _writable(describe(recv, dtype))
        if self.rank == root:
            _writable(_sized(into, source.count, "recv"))
        call = (source.address, into.address, source.count, int(source.dtype), _number(op), root)
        self._begin("ncclReduce", wait, *call, buffers=(source, into))

    def reduce_scatter(
        self,
        recv: Any,
        send: Any,
        op: Op = ReduceOp.SUM,
        *,
        dtype: DataType | None = None,
        wait: bool = True,
    ) -> None:
        """Reduce `send` (N parts) of all ranks; part r goes into `recv` of the r-th rank."""
        source, into = self._pair(send, recv, dtype)
        _sized(source, into.count * self.size, "send")
        call = (source.address, into.address, into.count, int(into.dtype), _number(op))
        self._begin("ncclReduceScatter", wait, *call, buffers=(source, into))

    def all_gather(
        self, recv: Any, send: Any, *, dtype: DataType | None = None, wait: bool = True
    ) -> None:
        """Put `send` of the r-th rank at part r of each rank's `recv` (N times as large)."""
        source, into = self._pair(send, recv, dtype)
        _sized(into, source.count * self.size, "recv")
        call = (source.address, into.address, source.count, int(source.dtype))
        self._begin("ncclAllGather", wait, *call, buffers=(source, into))

    def all_to_all(
        self, recv: Any, send: Any, *, dtype: DataType | None = None, wait: bool = True
    ) -> None:
        """Send part r of `send` to the r-th rank; what the r-th rank sends is part r of `recv`."""
        source, into = self._pair(send, recv, dtype)
        count = _parts(_sized(source, into.count, "send"), self.size, "send")
        call = (source.address, into.address, count, int(source.dtype))
        self._begin("ncclAlltoAll", wait, *call, buffers=(source, into))

    def broadcast(
        self, memory: Any, root: int = 0, *, dtype: DataType | None = None, wait: bool = True
    ) -> None:
        """Copy the root's memory into that of all others."""
        buffer = describe(memory, dtype)
        if self.rank != root:
            _writable(buffer)
        call = (buffer.address, buffer.address, buffer.count, int(buffer.dtype), root)
        self._begin("ncclBroadcast", wait, *call, buffers=(buffer,))

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        dtype: DataType | None = None,
        wait: bool = True,
    ) -> None:
        """Put `send` of the r-th rank at part r of the root's `recv`; others pass no `recv`."""
        source = describe(send, dtype)
        if self.rank == root:
            if recv is None:
                raise refuse(f"rank [{root}] gathers and has no recv")
            into = _writable(describe(recv, dtype))
            _sized(into, source.count * self.size, "recv")
        else:
            into = source
        call = (source.address, into.address, source.count, int(source.dtype), root)
        self._begin("ncclGather", wait, *call, buffers=(source, into))

    def scatter(
        self,
        recv: Any,
        send: Any = None,
        root: int = 0,
        *,
        dtype: DataType | None = None,
        wait: bool = True,
    ) -> None:
        """Put part r of the root's `send` into `recv` of the r-th rank; others pass no `send`."""
        into = _writable(describe(recv, dtype))
        if self.rank == root:
            if send is None:
                raise refuse(f"rank [{root}] scatters and has no send")
            source = _sized(describe(send, dtype), into.count * self.size, "send")
        else:
            source = into
        call = (source.address, into.address, into.count, int(into.dtype), root)
        self._begin("ncclScatter", wait, *call, buffers=(source, into))

    def send(
        self, memory: Any, peer: int, *, dtype: DataType | None = None, wait: bool = True
    ) -> None:
        """Send to a rank that receives as much; two ranks that send to each other need a group."""
        buffer = describe(memory, dtype)
        call = (buffer.address, buffer.count, int(buffer.dtype), peer)
        self._begin("ncclSend", wait, *call, buffers=(buffer,))

    def recv(
        self, memory: Any, peer: int, *, dtype: DataType | None = None, wait: bool = True
    ) -> None:
        """Receive what a rank sends, of exactly this size."""
        buffer = _writable(describe(memory, dtype))
        call = (buffer.address, buffer.count, int(buffer.dtype), peer)
        self._begin("ncclRecv", wait, *call, buffers=(buffer,))

    def pre_mul_sum(self, scalar: float | bytes, dtype: DataType) -> PreMulSum:
        """Make an operator for elements of `dtype`; for fp8 the scalar is given as its byte."""
        number = native.create_pre_mul_sum(self.handle, scalar_bytes(scalar, dtype), int(dtype))
        check(number[0], self.handle)
        return PreMulSum(self, number[1], dtype)
