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
import sys
import threading
import time

from pyft.wire.layout import CONTROL_PAGE, ENTRY_HEADER, LOG_HEADER, NO_SLOT, FaultKind

NOISE_BYTES = 4096
EVENT_RECORD = 114  # proxy/api/event.toml
LOST = 999


def own(part: str) -> mmap.mmap:
    """Map the log or the control page once more, as any code in this process could."""
    for fd in os.listdir("/proc/self/fd"):
        if f"memfd:pyft-{part}" in os.readlink(f"/proc/self/fd/{fd}"):
            return mmap.mmap(int(fd), 0)
    raise SystemExit(f"this process has no {part}")


def say_lost(page: mmap.mmap) -> None:
    """Write what a server would that has lost its GPU, and an epoch after which there is none."""
    while True:
        CONTROL_PAGE["fault_kind"].write(page, FaultKind.DEVICE)
        CONTROL_PAGE["fault_code"].write(page, LOST)
        CONTROL_PAGE["sticky_error"].write(page, LOST)
        CONTROL_PAGE["epoch"].write(page, (1 << 32) - 1)


def entry(call: int, seq: int, body_bytes: int) -> bytes:
    """Return the header of an entry."""
    size = ENTRY_HEADER.size + body_bytes
    return ENTRY_HEADER.pack(size=size, call=call, seq=seq, reply_slot=NO_SLOT)


def nonsense(kind: str, dice: random.Random, next_seq: int) -> bytes:
    noise = dice.randbytes(NOISE_BYTES)
    if kind == "lost":
        body = b"".join(word.to_bytes(8, "little") for word in (0x7777_0000_0007, 0, 1, 1))
        return (entry(EVENT_RECORD, next_seq, len(body)) + body).ljust(NOISE_BYTES, b"\0")
    if kind != "entries":
        return noise
    return b"".join(
        entry(dice.randrange(64, 700), next_seq + i, 256 - ENTRY_HEADER.size)
        + dice.randbytes(256 - ENTRY_HEADER.size)
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
    header = LOG_HEADER.unpack(log)
    if kind == "geometry":
        LOG_HEADER["ring_offset"].write(log, 1 << 63)
        LOG_HEADER["ring_bytes"].write(log, dice.randrange(1 << 64))
    elif kind == "page":
        page[:NOISE_BYTES] = dice.randbytes(NOISE_BYTES)
    at = header.ring_offset + header.appended % header.ring_bytes
    if kind not in ("geometry", "page"):
        log[at : at + NOISE_BYTES] = nonsense(kind, dice, header.next_seq)
        end = dice.randrange(1 << 63) if kind == "end" else header.appended + NOISE_BYTES
        LOG_HEADER["appended"].write(log, end)
    time.sleep(1.5)  # the server looks at least every 100 ms, the agent every 0.5 s
    unused = ctypes.c_size_t()
    code = runtime.cudaMemGetInfo(ctypes.byref(unused), ctypes.byref(unused))  # waits for an answer
    print(f"{kind} pid={os.getpid()} code={code}", flush=True)
    os._exit(0)  # a destructor would only meet the dead device again


if __name__ == "__main__":
    main()
