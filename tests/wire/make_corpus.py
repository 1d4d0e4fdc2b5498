"""Take the seeds of the fuzzers from the rings of real jobs.

    python tests/wire/make_corpus.py tests/wire/corpus.bin FIRST.ring [MORE.ring ...]

The first two entries of each call are kept as they lie in the ring: header (proxy/ring/layout.h),
body, payload padded to 16 bytes. Long payloads (modules, data) are cut; the header says what is left.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HEADER = struct.Struct("<IHHQIIQQQ")  # EntryHeader
AREAS = struct.Struct("<II6QII")  # LogHeader up to `device`
APPENDED, OLDEST = 64, 120  # offsets in LogHeader
MAGIC, VERSION = 0x4C544650, 1
ALIGN = 16
PER_CALL = 2
PAYLOAD_MAX = 256


def entries(log: mmap.mmap) -> Iterator[tuple[list[int], bytes, bytes]]:
    """Yield header fields, body and the start of the payload of each entry."""
    magic, version, ring, ring_bytes, _, _, arena, arena_bytes, _, _ = AREAS.unpack_from(log)
    if (magic, version) != (MAGIC, VERSION):
        raise SystemExit(f"the log has magic [{magic}], layout version [{version}]")
    (position,), (end,) = (struct.unpack_from("<Q", log, at) for at in (OLDEST, APPENDED))
    while position < end:
        at = ring + position % ring_bytes
        size, call = struct.unpack_from("<IH", log, at)
        position += size
        if call == 0:  # a pad
            continue
        fields = list(HEADER.unpack_from(log, at))
        start = arena + fields[6] % arena_bytes
        payload = log[start : start + min(fields[7], PAYLOAD_MAX)]
        yield fields, log[at + HEADER.size : at + size], payload


def main(output: str, *rings: str) -> None:
    """Write the corpus."""
    seen: Counter[int] = Counter()
    kept = bytearray()
    for ring in rings:
        with (
            Path(ring).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log,
        ):
            for fields, body, payload in entries(log):
                seen[fields[1]] += 1
                if seen[fields[1]] > PER_CALL:
                    continue
                fields[6], fields[7], fields[8] = 0, len(payload), 0
                kept += HEADER.pack(*fields) + body + payload + bytes(-len(payload) % ALIGN)
    Path(output).write_bytes(kept)
    print(f"[{len(seen)}] calls, [{len(kept)}] bytes")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
