"""What holds for all communicators that this process makes from now on."""

from __future__ import annotations

from pyft._native import flexccl as native
from pyft.flexccl.types import FlexcclError, Result, Transport


def check(code: int, comm: int | None = None) -> None:
    """Raise the library's own sentence unless `code` is success."""
    if code == Result.SUCCESS:
        return
    sentence = native.last_sentence(comm) or f"flexccl failed with result code [{code}]"
    raise FlexcclError(sentence, Result(code))


def version() -> int:
    """Return the version of NCCL's API that the library has, as 22809 for 2.28.9."""
    code, value = native.get_int_first("ncclGetVersion")
    check(code)
    return value


def set_transport(transport: Transport) -> None:
    """Choose how ranks reach each other; results do not depend on it."""
    check(native.call("flexcclSetTransport", int(transport)))


def set_timeout_ms(timeout_ms: int) -> None:
    """Set how long an operation may go on without any progress, in milliseconds."""
    check(native.call("flexcclSetTimeout", timeout_ms))


def set_reserved_slots(slots: int) -> None:
    """Set how many free slots communicators have, for ranks that are added later."""
    check(native.call("flexcclSetReservedSlots", slots))


def set_repair_ms(wait_ms: int) -> None:
    """Let an operation whose peer is gone wait so long for a repair; 0: that is an error at once."""
    check(native.call("flexcclSetRepair", wait_ms))


def set_fault(rules: str | None) -> None:
    """Let links lose, delay, damage or cut what passes (flexccl/transport/fault.h), for tests."""
    check(native.call("flexcclSetFault", None if rules is None else rules.encode()))
