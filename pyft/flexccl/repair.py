"""Repair: ranks that are replaced, added and removed while the others keep rank and connections.

Which rank calls what: see flexccl/include/flexccl.h. In short, to replace slot 1:

    exported = survivor.export_info(1)                        # at any live rank
    fresh, info = Communicator.init_new_node(exported, 1)     # in the new process
    survivor.replace_node(1, info)                            # at its neighbours, or everywhere
    fresh.setup_new_rank()                                    # in the new process

The infos are bytes to be sent by whatever means, and as secret as the unique id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyft._native import flexccl as native
from pyft.flexccl.buffers import describe
from pyft.flexccl.settings import check
from pyft.flexccl.types import DataType, refuse

if TYPE_CHECKING:
    from pyft.flexccl.communicator import Communicator


@dataclass(frozen=True)
class State:
    """What a rank knows of its communicator: flexcclState_t, where each field is explained.

    `entered`, `done`, `all_done`, `operation`, `committed`, `diverged`, `owed` count operations;
    `*_bytes`, `record_budget` and `content_room` are bytes; `paused`, `recorded` and `replaying`
    are 0 or 1; `suspect` is a slot or -1; `comm` is the communicator's number, the same everywhere.
    """

    epoch: int
    slot: int
    slots: int
    nranks: int
    position: int
    paused: int
    suspect: int
    entered: int
    done: int
    all_done: int
    operation: int
    kept_bytes: int
    record_bytes: int
    record_budget: int
    committed: int
    recorded: int
    replaying: int
    diverged: int
    comm: int
    content_bytes: int
    content_room: int
    owed: int


class Repair:
    """The repair calls; `Communicator` brings the handle. Any thread may call them."""

    handle: int

    def keep_for_ever(self, memory: Any) -> None:
        """Keep memory alive as long as this object: the library goes on writing to it."""
        self._records = memory

    def export_info(self, slot: int) -> bytes:
        """Return what a new process needs to take `slot`. Local, never waits."""
        code, info = native.export_info(self.handle, slot)
        check(code, self.handle)
        return info

    @staticmethod
    def init_new_node(exported: bytes, slot: int) -> tuple[Communicator, bytes]:
        """In the new process: return its communicator to be, and what the survivors need. Local."""
        from pyft.flexccl.communicator import Communicator

        if len(exported) != native.INFO_BYTES:
            raise refuse(f"an info has [{native.INFO_BYTES}] bytes, not [{len(exported)}]")
        code, handle, info = native.init_new_node(exported, slot)
        check(code)
        return Communicator.from_handle(handle), info

    def replace_node(self, slot: int, info: bytes) -> None:
        """At both neighbours, or everywhere: the new process takes `slot`. Repeatable."""
        check(self._with_info("ncclReplaceNode", slot, info=info), self.handle)

    def add_node(self, info: bytes) -> None:
        """At every rank, between the same two operations: the new process makes N one larger."""
        check(self._with_info("ncclAddNode", info=info), self.handle)

    def _with_info(self, name: str, *arguments: int, info: bytes) -> int:
        if len(info) != native.INFO_BYTES:
            raise refuse(f"an info has [{native.INFO_BYTES}] bytes, not [{len(info)}]")
        return native.call_with_info(name, self.handle, *arguments, info=info)

    def remove_node(self, slot: int) -> None:
        """At every survivor: N shrinks by one, the others keep their numbers."""
        check(native.call("ncclRemoveNode", self.handle, slot), self.handle)

    def setup_new_rank(self) -> None:
        """In the new process, last: wait until its neighbours agree, and decide the repair."""
        check(native.call("ncclCommSetupNewRank", self.handle), self.handle)

    def state(self) -> State:
        """Return epoch, slots, progress and records; never waits."""
        code, fields = native.get_state(self.handle)
        check(code, self.handle)
        return State(**fields)

    def set_records(self, memory: Any) -> None:
        """Write what a replay needs into writable memory; its size in bytes is the budget.

        It has to be aligned to 64 bytes, as an mmap is, and to outlive this process if the records
        are to: an mmap of a file or a memfd.
        """
        buffer = describe(memory, DataType.UINT8)
        if not buffer.writable:
            raise refuse(f"a read-only [{type(memory).__name__}] cannot take records")
        code = native.call("flexcclSetRecords", self.handle, buffer.address, buffer.count)
        check(code, self.handle)
        self.keep_for_ever(memory)

    def children(self, slot: int) -> list[tuple[int, int]]:
        """Return (number, slot there) of what was split or shrunk from this one and has `slot`."""
        code, made = native.children(self.handle, slot)
        check(code, self.handle)
        return made

    def committed(self, operation: int) -> None:
        """Free the records of the first `operation` operations."""
        check(native.call("flexcclCommitted", self.handle, operation), self.handle)

    def replay(self, operation: int, records: Any = None) -> None:
        """In the new process, before setup_new_rank: repeat what follows the first `operation`.

        `records` is the memory of the predecessor's records; new ones follow there.
        """
        address, size = None, 0
        if records is not None:
            buffer = describe(records, DataType.UINT8)
            address, size = buffer.address, buffer.count
        check(native.call("flexcclReplay", self.handle, address, size, operation), self.handle)
        self.keep_for_ever(records)
