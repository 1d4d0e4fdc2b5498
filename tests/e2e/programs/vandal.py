"""Use the GPU, write nonsense behind the end of the own ring, and print what calls answer then.

    vandal.py KIND SEED

KIND is noise (random bytes), entries (headers that look right, random otherwise), end (an end of
the ring that cannot be), geometry (the ring is where nothing is), page (noise in the control page), or
lost (the control page says that the GPU is lost, again and again, and a command names an object that
does not exist).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import sys
import threading
import time

RING_OFFSET, RING_BYTES, APPENDED, NEXT_SEQ = 8, 16, 64, 104  # tests/unit/test_protocol.py
NOISE_BYTES = 4096
EPOCH, STICKY, FAULT = 24, 332, 540
EVENT_RECORD = 114  # proxy/api/event.toml
LOST = 999
ENTRY = struct.Struct("<IHHQIIQQQ")


def own(part: str) -> mmap.mmap:
    """Map the log or the control page once more, as any code in this process could."""
    for fd in os.listdir("/proc/self/fd"):
        if f"memfd:pyft-{part}" in os.readlink(f"/proc/self/fd/{fd}"):
            return mmap.mmap(int(fd), 0)
    raise SystemExit(f"this process has no {part}")


def say_lost(page: mmap.mmap) -> None:
    """Write what a server would that has lost its GPU, and an epoch after which there is none."""
    while True:
        struct.pack_into("<Ii", page, FAULT, 1, LOST)
        struct.pack_into("<i", page, STICKY, LOST)
        struct.pack_into("<I", page, EPOCH, (1 << 32) - 1)


def nonsense(kind: str, dice: random.Random, next_seq: int) -> bytes:
    noise = dice.randbytes(NOISE_BYTES)
    if kind == "lost":
        head = ENTRY.pack(80, EVENT_RECORD, 0, next_seq, 0, 0xFFFFFFFF, 0, 0, 0)
        return (head + struct.pack("<QQQQ", 0x7777_0000_0007, 0, 1, 1)).ljust(NOISE_BYTES, b"\0")
    if kind != "entries":
        return noise
    return b"".join(
        ENTRY.pack(256, dice.randrange(64, 700), 0, next_seq + i, 0, 0xFFFFFFFF, 0, 0, 0)
        + dice.randbytes(256 - ENTRY.size)
        for i in range(NOISE_BYTES // 256)
    )


def main() -> None:
    kind, dice = sys.argv[1], random.Random(int(sys.argv[2]))
    runtime = ctypes.CDLL(None)
    memory = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
    assert runtime.cudaDeviceSynchronize() == 0
    log, page = own("log"), own("control")
    if kind == "lost":
        threading.Thread(target=say_lost, args=(page,), daemon=True).start()
    ring_offset, ring_bytes = struct.unpack_from("<QQ", log, RING_OFFSET)
    (appended,) = struct.unpack_from("<Q", log, APPENDED)
    (next_seq,) = struct.unpack_from("<Q", log, NEXT_SEQ)
    if kind == "geometry":
        struct.pack_into("<Q", log, RING_OFFSET, 1 << 63)
        struct.pack_into("<Q", log, RING_BYTES, dice.randrange(1 << 64))
    elif kind == "page":
        page[:NOISE_BYTES] = dice.randbytes(NOISE_BYTES)
    at = ring_offset + appended % ring_bytes
    if kind not in ("geometry", "page"):
        log[at : at + NOISE_BYTES] = nonsense(kind, dice, next_seq)
        end = dice.randrange(1 << 63) if kind == "end" else appended + NOISE_BYTES
        struct.pack_into("<Q", log, APPENDED, end)
    time.sleep(1.5)  # the server looks at least every 100 ms, the agent every 0.5 s
    unused = ctypes.c_size_t()
    code = runtime.cudaMemGetInfo(ctypes.byref(unused), ctypes.byref(unused))  # waits for an answer
    print(f"{kind} pid={os.getpid()} code={code}", flush=True)
    os._exit(0)  # a destructor would only meet the dead device again


if __name__ == "__main__":
    main()
