"""Take the seeds of the fuzzers from the rings of real jobs.

    python tests/wire/make_corpus.py tests/wire/corpus.bin FIRST.ring [MORE.ring ...]

The first two entries of each call are kept as they lie in the ring: header (proxy/ring/layout.h),
body, payload padded to 16 bytes. Long payloads (modules, data) are cut; the header says what is left.
"""

from __future__ import annotations

import mmap
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyft.wire.layout import ENTRY_HEADER, LAYOUT_VERSION, LOG_HEADER, LOG_MAGIC, Mark

ALIGN = 16
PER_CALL = 2
PAYLOAD_MAX = 256


def entries(log: mmap.mmap) -> Iterator[tuple[Any, bytes, bytes]]:
    """Yield header, body and the start of the payload of each entry."""
    header = LOG_HEADER.unpack(log)
    if (header.magic, header.version) != (LOG_MAGIC, LAYOUT_VERSION):
        raise SystemExit(f"the log has magic [{header.magic}], layout version [{header.version}]")
    position = header.oldest
    while position < header.appended:
        at = header.ring_offset + position % header.ring_bytes
        size = ENTRY_HEADER["size"].read(log, at)
        position += size
        if ENTRY_HEADER["call"].read(log, at) == Mark.PAD:
            continue
        entry = ENTRY_HEADER.unpack(log[at : at + ENTRY_HEADER.size])
        start = header.arena_offset + entry.payload_position % header.arena_bytes
        payload = log[start : start + min(entry.payload_bytes, PAYLOAD_MAX)]
        yield entry, log[at + ENTRY_HEADER.size : at + size], payload


def main(output: str, *rings: str) -> None:
    """Write the corpus."""
    seen: Counter[int] = Counter()
    kept = bytearray()
    for ring in rings:
        with (
            Path(ring).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log,
        ):
            for entry, body, payload in entries(log):
                seen[entry.call] += 1
                if seen[entry.call] > PER_CALL:
                    continue
                head = entry._replace(payload_position=0, payload_bytes=len(payload), time_ns=0)
                kept += ENTRY_HEADER.pack(*head) + body + payload + bytes(-len(payload) % ALIGN)
    Path(output).write_bytes(kept)
    print(f"[{len(seen)}] calls, [{len(kept)}] bytes")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
