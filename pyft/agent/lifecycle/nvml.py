"""What NVML says about the real GPUs of a job, in the terms of pyft.recovery.classify."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pyft._native.nvml import Library, NvmlError
from pyft.recovery.classify import Do, Fault, row_of

_LOST = ("GPU_IS_LOST", "RESET_REQUIRED")  # errors that say so
_ACTION_CHANGED = 154  # the Xid that says so: what the action is now, only NVML knows


class Nvml:
    """Asks about GPUs whose servers died, and collects Xid events.

    GPUs are numbered as in the job, `uuids` in that order; two numbers may mean one GPU.
    """

    def __init__(self, library: Library, uuids: Sequence[str]) -> None:
        self._library = library
        self._uuids = list(uuids)
        for uuid in dict.fromkeys(uuids):
            with contextlib.suppress(NvmlError):
                library.watch(uuid)

    def look(self, gpu: int) -> Fault | None:
        """Return what NVML knows about a GPU; None if it says nothing.

        The recovery action decides where the driver has one (570 and newer).
        """
        uuid = self._uuids[gpu]
        try:
            self._library.touch(uuid)
        except NvmlError as error:
            if error.name in _LOST:
                return Fault(row_of("nvml", error.name), f"NVML says [{error.name}]")
        action = self._library.recovery_action(uuid)
        if action is None:
            return None
        return Fault(row_of("nvml", action), f"NVML's recovery action is [{action}]")

    def xids(self) -> list[tuple[int, Fault]]:
        """Return the Xid events since the last call that ask for something, with their GPUs."""
        found = []
        while event := self._library.next_xid():
            uuid, xid = event
            fault = Fault(row_of("xid", xid), f"Xid [{xid}]")
            gpus = [gpu for gpu, name in enumerate(self._uuids) if name == uuid]
            if xid == _ACTION_CHANGED and gpus:
                fault = self.look(gpus[0]) or fault
            if fault.row.do is not Do.WAIT and not fault.means_well:
                found += [(gpu, fault) for gpu in gpus]
        return found


def load(uuids: Sequence[str]) -> Nvml | None:
    """Return the real thing, None where there is no library or no driver."""
    try:
        return Nvml(Library(), uuids)
    except (OSError, NvmlError):
        return None
