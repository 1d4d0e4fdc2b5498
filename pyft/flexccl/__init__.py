"""flexccl from Python: collectives between processes or threads, and their repair.

    import numpy as np
    from pyft import flexccl

    comms = flexccl.init_all(4)                      # four ranks in this process

    def step(comm):
        data = np.full(1000, comm.rank, np.float32)
        comm.all_reduce(data)                        # in place; waits for the result
        return data[0]

    print(flexccl.run_ranks(comms, step))            # [6.0, 6.0, 6.0, 6.0]

Processes: one calls `get_unique_id()`, all call `Communicator(unique_id, rank, size)`.
"""

from pyft.flexccl.buffers import Buffer, describe
from pyft.flexccl.collectives import PreMulSum
from pyft.flexccl.communicator import Communicator, get_unique_id, init_all
from pyft.flexccl.group import group
from pyft.flexccl.ranks import run_ranks
from pyft.flexccl.records import (
    Region,
    adopt,
    find,
    forget,
    read_region,
    replace_later,
    set_contents,
)
from pyft.flexccl.repair import State
from pyft.flexccl.settings import (
    set_fault,
    set_repair_ms,
    set_reserved_slots,
    set_timeout_ms,
    set_transport,
    version,
)
from pyft.flexccl.types import DataType, FlexcclError, ReduceOp, Result, Transport

__all__ = [
    "Buffer",
    "Communicator",
    "DataType",
    "FlexcclError",
    "PreMulSum",
    "ReduceOp",
    "Region",
    "Result",
    "State",
    "Transport",
    "adopt",
    "describe",
    "find",
    "forget",
    "get_unique_id",
    "group",
    "init_all",
    "read_region",
    "replace_later",
    "run_ranks",
    "set_contents",
    "set_fault",
    "set_repair_ms",
    "set_reserved_slots",
    "set_timeout_ms",
    "set_transport",
    "version",
]
