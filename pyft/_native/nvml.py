"""Asks the driver about its GPUs, by NVML, which needs no context. Errors are NvmlError.

The binding is NVIDIA's own (nvidia-ml-py): the numbers of its enumerations change between drivers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_void_p
from functools import cache
from types import ModuleType
from typing import Any

ACTION_PREFIX = "NVML_GPU_RECOVERY_ACTION_"


class NvmlError(Exception):
    """A call has failed; `name` is that of its nvmlReturn_t, without NVML_ERROR_."""

    def __init__(self, call: str, name: str, code: int) -> None:
        super().__init__(f"[{call}] fails with code [{code}], {name}")
        self.name = name


class _Place(ctypes.Structure):
    """Dl_info."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p))


def library_path() -> str:
    """Return the file of libnvidia-ml.so.1; nothing where there is none."""
    place = _Place()
    try:
        init = ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2
    except (OSError, AttributeError):
        return ""
    found = ctypes.CDLL(None).dladdr(ctypes.cast(init, c_void_p), ctypes.byref(place))
    return place.file.decode() if found and place.file else ""


@cache
def binding() -> ModuleType:
    """Return nvidia-ml-py's module, imported late: a job of soft GPUs need not wait for it."""
    import pynvml

    return pynvml


@cache
def actions() -> dict[int, str]:
    """Return the words for each nvmlDeviceGpuRecoveryAction_t, such as `gpu reset`."""
    return {
        value: name.removeprefix(ACTION_PREFIX).lower().replace("_", " ")
        for name, value in vars(binding()).items()
        if name.startswith(ACTION_PREFIX)
    }


def error_name(code: int) -> str:
    """Return the name of an nvmlReturn_t, without NVML_ERROR_."""
    prefix = "NVML_ERROR_"
    names = (n for n, v in vars(binding()).items() if n.startswith(prefix) and v == code)
    return next(names, f"NVML_ERROR_{code}").removeprefix(prefix)


class Library:
    """libnvidia-ml.so.1. GPUs are known by their UUIDs. A missing function is an NvmlError."""

    def __init__(self) -> None:
        """Raise OSError where there is no NVML, NvmlError where it does not work."""
        ctypes.CDLL("libnvidia-ml.so.1")  # whose error says why it cannot be loaded
        nvml = self._nvml = binding()
        self._call(nvml.nvmlInit)
        handles = [
            self._call(nvml.nvmlDeviceGetHandleByIndex, index)
            for index in range(self._call(nvml.nvmlDeviceGetCount))
        ]
        self._handles = {self._call(nvml.nvmlDeviceGetUUID, handle): handle for handle in handles}
        self._events: Any = None

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            name = error_name(error.value)
            raise NvmlError(function.__name__, name, error.value) from None

    @property
    def gpus(self) -> list[str]:
        """The UUIDs of all GPUs, in the order of nvidia-smi."""
        return list(self._handles)

    def touch(self, uuid: str) -> None:
        """Ask a GPU for something only it knows; raise NvmlError when it does not answer."""
        self._call(self._nvml.nvmlDeviceGetMemoryInfo, self._handles[uuid])

    def recovery_action(self, uuid: str) -> str | None:
        """Return what must happen before the GPU works again; None where NVML does not know."""
        field = self._nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        try:
            (value,) = self._call(self._nvml.nvmlDeviceGetFieldValues, self._handles[uuid], [field])
        except NvmlError:
            return None
        if value.nvmlReturn:
            return None
        action = value.value.uiVal
        return actions().get(action, f"action {action}")

    def watch(self, uuid: str) -> None:
        """Have Xids of a GPU reported by next_xid()."""
        nvml = self._nvml
        if self._events is None:
            self._events = self._call(nvml.nvmlEventSetCreate)
        kind = nvml.nvmlEventTypeXidCriticalError
        self._call(nvml.nvmlDeviceRegisterEvents, self._handles[uuid], kind, self._events)

    def next_xid(self) -> tuple[str, int] | None:
        """Return the UUID and the number of the next Xid; None when there is none now."""
        if self._events is None:
            return None
        try:
            event = self._call(self._nvml.nvmlEventSetWait_v2, self._events, 0)
        except NvmlError:
            return None
        address = ctypes.cast(event.device, c_void_p).value
        for uuid, handle in self._handles.items():
            if ctypes.cast(handle, c_void_p).value == address:
                return uuid, event.eventData
        return "", event.eventData


def recovery_action(uuid: str) -> str:
    """Return what NVML says must happen before a GPU works again."""
    try:
        return Library().recovery_action(uuid) or "unknown"
    except (OSError, NvmlError) as error:
        return f"unknown: {error}"
