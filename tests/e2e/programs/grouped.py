"""One process has two ranks: what NCCL lets a thread do in a group only, called directly."""

from __future__ import annotations

import ctypes

import torch

RANKS = range(2)
FLOAT, SUM, ON_HOST = 7, 0, 1  # as nccl.h has them
NCCL = ctypes.CDLL(None)


class Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


def call(name: str, *arguments: object) -> None:
    code = getattr(NCCL, name)(*arguments)
    assert code == 0, (name, code, ctypes.string_at(NCCL.ncclGetLastError(None)))


def at(array: ctypes.Array, rank: int) -> object:
    return ctypes.byref(array, rank * ctypes.sizeof(ctypes.c_void_p))


def reduce(comms: ctypes.Array, operations: list[int]) -> list[float]:
    """Return what each rank gets of [1, 2] with its operation."""
    parts = [torch.full((1000,), rank + 1.0, device=f"cuda:{rank}") for rank in RANKS]
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    call("ncclGroupStart")
    for rank, part in enumerate(parts):
        memory = ctypes.c_void_p(part.data_ptr())
        count = ctypes.c_size_t(part.numel())
        comm, stream = ctypes.c_void_p(comms[rank]), ctypes.c_void_p(0)
        call("ncclAllReduce", memory, memory, count, FLOAT, operations[rank], comm, stream)
        if operations[rank] != SUM:  # as PyTorch does it: the call has taken what it needs of it
            call("ncclRedOpDestroy", operations[rank], comm)
    call("ncclGroupEnd")
    return [part.sum().item() for part in parts]


def scaled_by(factor: float, comms: ctypes.Array) -> list[int]:
    found = []
    for rank in RANKS:
        operation, scalar = ctypes.c_int(), ctypes.c_float(factor)
        arguments = ctypes.byref(operation), ctypes.byref(scalar), FLOAT, ON_HOST
        call("ncclRedOpCreatePreMulSum", *arguments, ctypes.c_void_p(comms[rank]))
        found.append(operation.value)
    return found


NCCL.ncclCommInitRank.argtypes = (ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int)
NCCL.ncclGetLastError.restype = ctypes.c_void_p
id, world, halves = Id(), (ctypes.c_void_p * 2)(), (ctypes.c_void_p * 2)()
call("ncclGetUniqueId", ctypes.byref(id))
call("ncclGroupStart")
for rank in RANKS:
    torch.cuda.set_device(rank)
    call("ncclCommInitRank", at(world, rank), 2, id, rank)
call("ncclGroupEnd")
print("world", reduce(world, [SUM, SUM]), flush=True)
print("half of each", reduce(world, scaled_by(0.5, world)), flush=True)
call("ncclGroupStart")
for rank in RANKS:
    call("ncclCommSplit", ctypes.c_void_p(world[rank]), 0, -rank, at(halves, rank), None)
call("ncclGroupEnd")
order = ctypes.c_int()
call("ncclCommUserRank", ctypes.c_void_p(halves[0]), ctypes.byref(order))
print("the other way round", order.value, reduce(halves, [SUM, SUM]), flush=True)
call("ncclGroupStart")
for rank in RANKS:
    call("ncclCommDestroy", ctypes.c_void_p(halves[rank]))
call("ncclGroupEnd")
print("world", reduce(world, [SUM, SUM]), flush=True)
