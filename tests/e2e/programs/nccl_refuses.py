"""Print what NCCL calls answer to wrong ids, missing ranks and ended communicators."""

from __future__ import annotations

import ctypes

import torch

torch.zeros(1, device="cuda")
nccl = ctypes.CDLL(None)


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = [("internal", ctypes.c_char * 128)]


nccl.ncclCommInitRank.argtypes = [
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int,
    UniqueId,
    ctypes.c_int,
]
nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]

comm = ctypes.c_void_p()
lost = UniqueId(b"no such id")
print("two ranks", nccl.ncclCommInitRank(ctypes.byref(comm), 2, lost, 0), comm.value)
nccl.ncclGetUniqueId(ctypes.byref(lost))
print("alone", nccl.ncclCommInitRank(ctypes.byref(comm), 2, lost, 0), comm.value)
nccl.ncclGetUniqueId(ctypes.byref(lost))
print("one rank", nccl.ncclCommInitRank(ctypes.byref(comm), 1, lost, 0), bool(comm.value))
print("destroy", nccl.ncclCommDestroy(comm), nccl.ncclCommDestroy(comm))
ends = (nccl.ncclCommFinalize, nccl.ncclCommAbort, nccl.ncclCommDestroy)
print("none", *(end(None) for end in ends))
