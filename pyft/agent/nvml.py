"""What NVML says about real GPUs (`nvidia-ml-py`, if it is installed).

The soft GPU's NVML knows only the devices of its own process, so nobody asks it here.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from pyft.recovery.classify import Do, Fault, row_of


class Nvml:
    """Asks about lost GPUs, and collects Xid events. Errors of NVML itself say nothing."""

    def __init__(self, library: Any, gpus: int) -> None:
        self._library = library
        self._names = {
            library.NVML_ERROR_GPU_IS_LOST: "GPU_IS_LOST",
            library.NVML_ERROR_RESET_REQUIRED: "RESET_REQUIRED",
        }
        library.nvmlInit()
        self._handles = [library.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(gpus)]
        self._events = library.nvmlEventSetCreate()
        for handle in self._handles:
            with contextlib.suppress(library.NVMLError):
                kind = library.nvmlEventTypeXidCriticalError
                library.nvmlDeviceRegisterEvents(handle, kind, self._events)

    def look(self, gpu: int) -> Fault | None:
        """Return why a GPU is unusable, None if it is not."""
        try:
            self._library.nvmlDeviceGetMemoryInfo(self._handles[gpu])
        except self._library.NVMLError as error:
            name = self._names.get(error.value)
            return Fault(row_of("nvml", name), f"NVML says [{name}]") if name else None
        return None

    def xids(self) -> list[tuple[int, Fault]]:
        """Return the Xid events since the last call that ask for something, with their GPUs."""
        found = []
        with contextlib.suppress(self._library.NVMLError):
            while True:  # ends by a timeout error when there is no further one
                event = self._library.nvmlEventSetWait_v2(self._events, 0)
                row = row_of("xid", int(event.eventData))
                if row.do is not Do.WAIT and event.device in self._handles:
                    gpu = self._handles.index(event.device)
                    found.append((gpu, Fault(row, f"Xid [{event.eventData}]")))
        return found


def load(gpus: int) -> Nvml | None:
    """Return the real thing, None where there is no library or no driver."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        return Nvml(library, gpus)
    except library.NVMLError:
        return None
