"""Use the GPU, write nonsense behind the end of the own ring, and print what calls answer then.

    vandal.py KIND SEED

KIND is noise (random bytes), entries (headers that look right, random otherwise), or end (an end of
the ring that cannot be).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import sys
import time

RING_OFFSET, RING_BYTES, APPENDED, NEXT_SEQ = 8, 16, 64, 104  # tests/unit/test_protocol.py
NOISE_BYTES = 4096
ENTRY = struct.Struct("<IHHQIIQQQ")


def own_log() -> mmap.mmap:
    """Map the log once more, as any code in this process could."""
    for fd in os.listdir("/proc/self/fd"):
        if "memfd:pyft-log" in os.readlink(f"/proc/self/fd/{fd}"):
            return mmap.mmap(int(fd), 0)
    raise SystemExit("this process has no log")


def nonsense(kind: str, dice: random.Random, next_seq: int) -> bytes:
    noise = dice.randbytes(NOISE_BYTES)
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
    log = own_log()
    ring_offset, ring_bytes = struct.unpack_from("<QQ", log, RING_OFFSET)
    (appended,) = struct.unpack_from("<Q", log, APPENDED)
    (next_seq,) = struct.unpack_from("<Q", log, NEXT_SEQ)
    at = ring_offset + appended % ring_bytes
    log[at : at + NOISE_BYTES] = nonsense(kind, dice, next_seq)
    end = dice.randrange(1 << 63) if kind == "end" else appended + NOISE_BYTES
    struct.pack_into("<Q", log, APPENDED, end)
    time.sleep(0.5)  # the server looks at least every 100 ms
    unused = ctypes.c_size_t()
    code = runtime.cudaMemGetInfo(ctypes.byref(unused), ctypes.byref(unused))  # waits for an answer
    print(f"pid={os.getpid()} code={code}", flush=True)
    os._exit(0)  # a destructor would only meet the dead device again


if __name__ == "__main__":
    main()
