"""Asks the driver about its GPUs, by NVML, which needs no context. Errors are NvmlError."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_longlong, c_uint, c_ulonglong, c_void_p

GPU_IS_LOST, RESET_REQUIRED, TIMEOUT = 15, 16, 10
XID_EVENTS = 0x8  # nvmlEventTypeXidCriticalError
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
# nvmlDeviceGpuRecoveryAction_t
ACTIONS = ("none", "reset", "reboot", "drain P2P", "drain and reset", "reset of the bus")


class NvmlError(Exception):
    """A call has failed; `code` is its nvmlReturn_t."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"[{call}] fails with code [{code}]")
        self.code = code


class _Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", c_void_p),
        ("type", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; of its value only the unsigned int."""

    _fields_ = (
        ("field", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency", c_longlong),
        ("type", c_int),
        ("code", c_int),
        ("value", c_uint),
        ("padding", c_uint),
    )


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


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
    found = ctypes.CDLL(None).dladdr(ctypes.cast(init, c_void_p), byref(place))
    return place.file.decode() if found and place.file else ""


class Library:
    """libnvidia-ml.so.1. GPUs are known by their UUIDs. A missing function is an NvmlError."""

    def __init__(self) -> None:
        """Raise OSError where there is no NVML, NvmlError where it does not work."""
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        self._handles: dict[str, c_void_p] = {}
        for index in range(count.value):
            handle, text = c_void_p(), ctypes.create_string_buffer(96)
            self._call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
            self._call("nvmlDeviceGetUUID", handle, text, len(text))
            self._handles[text.value.decode()] = handle
        self._events: c_void_p | None = None

    def _call(self, name: str, *arguments: object) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise NvmlError(name, 13) from None  # NVML_ERROR_FUNCTION_NOT_FOUND
        if code:
            raise NvmlError(name, code)

    @property
    def gpus(self) -> list[str]:
        """The UUIDs of all GPUs, in the order of nvidia-smi."""
        return list(self._handles)

    def touch(self, uuid: str) -> None:
        """Ask a GPU for something only it knows; raise NvmlError when it does not answer."""
        self._call("nvmlDeviceGetMemoryInfo", self._handles[uuid], byref(_Memory()))

    def recovery_action(self, uuid: str) -> str | None:
        """Return what must happen before the GPU works again; None where NVML does not know."""
        value = _FieldValue(field=RECOVERY_ACTION)
        try:
            self._call("nvmlDeviceGetFieldValues", self._handles[uuid], 1, byref(value))
        except NvmlError:
            return None
        if value.code:
            return None
        return ACTIONS[value.value] if value.value < len(ACTIONS) else f"action {value.value}"

    def watch(self, uuid: str) -> None:
        """Have Xids of a GPU reported by next_xid()."""
        if self._events is None:
            events = c_void_p()
            self._call("nvmlEventSetCreate", byref(events))
            self._events = events
        handle, kind = self._handles[uuid], c_ulonglong(XID_EVENTS)
        self._call("nvmlDeviceRegisterEvents", handle, kind, self._events)

    def next_xid(self) -> tuple[str, int] | None:
        """Return the UUID and the number of the next Xid; None when there is none now."""
        event = _Event()
        if self._events is None:
            return None
        try:
            self._call("nvmlEventSetWait_v2", self._events, byref(event), 0)
        except NvmlError:
            return None
        for uuid, handle in self._handles.items():
            if handle.value == event.device:
                return uuid, event.data
        return "", event.data


def recovery_action(uuid: str) -> str:
    """Return what NVML says must happen before a GPU works again."""
    try:
        return Library().recovery_action(uuid) or "unknown"
    except (OSError, NvmlError) as error:
        return f"unknown: {error}"
