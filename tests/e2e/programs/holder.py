"""Attach without PyTorch, say `ready`, and do nothing for a minute."""

from __future__ import annotations

import ctypes
import time

runtime = ctypes.CDLL(None)
assert runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20)) == 0
print("ready", flush=True)
time.sleep(60)
