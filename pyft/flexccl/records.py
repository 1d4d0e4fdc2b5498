"""What a rank leaves behind for the process that takes its place: regions and content stores.

flexccl/README.md ("Records and replay across processes") has the calls in their order;
`Communicator.set_records`, `committed` and `replay` are the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyft._native import flexccl as native
from pyft.flexccl.buffers import describe
from pyft.flexccl.settings import check
from pyft.flexccl.types import DataType, refuse
from pyft.wire.layout import FLEXCCL_REGION, FLEXCCL_REGION_MAGIC

if TYPE_CHECKING:
    from pyft.flexccl.communicator import Communicator

_KEPT: list[Any] = []  # content stores stay mapped as long as this process


@dataclass(frozen=True)
class Region:
    """What the first bytes of a rank's records say (flexcclRegion_t in flexccl.h)."""

    bytes: int
    comm: int
    parent: int
    slot: int
    slots: int
    epoch: int
    closed: int
    entered: int
    done: int
    entered_collectives: int
    done_collectives: int
    committed: int
    unrecorded: int
    diverged: int
    diverged_operation: int
    used_bytes: int
    budget_bytes: int
    process: bytes


def read_region(memory: Any) -> Region | None:
    """Read what records say of themselves, at any time, from any process; None: nothing yet."""
    magic, *fields = FLEXCCL_REGION.unpack(memory)
    if magic not in (0, FLEXCCL_REGION_MAGIC):
        raise refuse(f"magic [{magic:#x}] is not that of records of this version of flexccl")
    return Region(*fields) if magic else None


def set_contents(memory: Any, holder: int) -> None:
    """Share the outputs that all ranks of a host have, as number `holder` (0 to 63) of the host.

    `memory` is mapped by all processes of the host, and zeros at first.
    """
    buffer = _writable(memory)
    check(native.call("flexcclSetContents", buffer.address, buffer.count, holder))
    _KEPT.append(memory)


def find(number: int) -> Communicator | None:
    """Return the communicator with this number in this process; the handle stays its maker's."""
    from pyft.flexccl.communicator import Communicator

    handle = native.find(number)
    return None if handle is None else Communicator.from_handle(handle)


def adopt(records: Any, operation: int) -> Communicator:
    """Make the communicator again whose records these are, when none of its other ranks is left."""
    from pyft.flexccl.communicator import Communicator

    buffer = _writable(records)
    code, handle = native.adopt(buffer.address, buffer.count, operation)
    check(code)
    made = Communicator.from_handle(handle)
    made.keep_for_ever(records)
    return made


def forget(records: Any) -> None:
    """Release what the records of a destroyed communicator hold in the content store."""
    buffer = _writable(records)
    check(native.call("flexcclForget", buffer.address, buffer.count))


def replace_later(number: int, slot: int, info: bytes) -> None:
    """As replace_node, of a communicator that this process may still be about to make."""
    if len(info) != native.INFO_BYTES:
        raise refuse(f"an info has [{native.INFO_BYTES}] bytes, not [{len(info)}]")
    check(native.call_with_info("flexcclReplaceLater", number, slot, info=info))


def _writable(memory: Any) -> Any:
    buffer = describe(memory, DataType.UINT8)
    if not buffer.writable:
        raise refuse(f"a read-only [{type(memory).__name__}] cannot hold records")
    return buffer
