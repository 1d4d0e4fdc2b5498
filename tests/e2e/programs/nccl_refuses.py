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
pointer, size = ctypes.c_void_p, ctypes.c_size_t
nccl.ncclSend.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, pointer, pointer]
nccl.ncclCommDestroy.argtypes = [pointer]

comm, buffer = ctypes.c_void_p(), torch.zeros(4, device="cuda")
lost = UniqueId(b"no such id")
print("two ranks", nccl.ncclCommInitRank(ctypes.byref(comm), 2, lost, 0), comm.value)
nccl.ncclGetUniqueId(ctypes.byref(lost))
print("alone", nccl.ncclCommInitRank(ctypes.byref(comm), 2, lost, 0), comm.value)
nccl.ncclGetUniqueId(ctypes.byref(lost))
print("one rank", nccl.ncclCommInitRank(ctypes.byref(comm), 1, lost, 0), bool(comm.value))
send = (buffer.data_ptr(), 4, 7, 0, comm, None)
print("send outside a group", nccl.ncclSend(*send))
nccl.ncclGroupStart()
print("send in a group", nccl.ncclSend(*send), nccl.ncclGroupEnd())
print("destroy", nccl.ncclCommDestroy(comm), nccl.ncclCommDestroy(comm))
