"""Asks the driver which GPUs there are."""

from __future__ import annotations

import ctypes


def driver_gpus() -> list[str] | None:
    """Return the UUIDs of all GPUs of the driver, None without one. Asks NVML, which needs no context."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        count, handle = ctypes.c_uint(), ctypes.c_void_p()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return None
        uuids = []
        for index in range(count.value):
            text = ctypes.create_string_buffer(96)
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                return None
            if nvml.nvmlDeviceGetUUID(handle, text, len(text)):
                return None
            uuids.append(text.value.decode())
    except (OSError, AttributeError):
        return None
    return uuids
