"""Print digests that plain integer arithmetic gives by the definition in checkpoint/digest/nh.h, as C++.

`nh_model.py OUT.h`. The contents are those of content() in nh_test.cc.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

PRIME = (1 << 127) - 1
WORD, DOUBLE = (1 << 32) - 1, (1 << 64) - 1
LENGTHS = (0, 1, 3, 15, 16, 17, 511, 512, 513, 4096, 65535, 65536, 65537, 131072, 200001)
SEEDS = (0, 1, 0x0123456789ABCDEF)


def random(seed: int) -> list[int]:
    """Return 64-bit numbers of SplitMix64."""
    numbers, state = [], seed
    for _ in range(2 + 2 * 131):
        state = (state + 0x9E3779B97F4A7C15) & DOUBLE
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & DOUBLE
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & DOUBLE
        numbers.append(z ^ z >> 31)
    return numbers


def content(length: int) -> bytes:
    return bytes((i * 131 + (i >> 8) * 7 + (i >> 16) * 29 + 5) & 255 for i in range(length))


def digest(data: bytes, seed: int) -> int:
    numbers = random(seed)
    r = (numbers[0] | numbers[1] << 64) & PRIME
    key = [part for number in numbers[2:] for part in (number & WORD, number >> 32)]
    sums: dict[int, int] = {}  # of exponents of r
    for at in range(0, len(data), 16):
        tile, inside = divmod(at, 65536)
        row, column = divmod(inside // 16, 32)
        x = struct.unpack("<4I", data[at : at + 16].ljust(16, b"\0"))
        for p in range(4):
            k = key[4 * (row + p) : 4 * (row + p) + 4]
            a, b, c, d = ((x[i] + k[i]) & WORD for i in range(4))
            exponent = 128 * tile + 4 * column + p + 1
            sums[exponent] = (sums.get(exponent, 0) + a * b + c * d) & DOUBLE
    return (len(data) + sum(h * pow(r, e, PRIME) for e, h in sums.items())) % PRIME


def main() -> None:
    rows = []
    for seed in SEEDS:
        for length in LENGTHS:
            value = digest(content(length), seed)
            rows.append(f"    {{{seed}u, {length}, {{{value & DOUBLE}u, {value >> 64}u}}}},")
    start = "constexpr Vector kVectors[] = {"
    Path(sys.argv[1]).write_text("\n".join([start, *rows, "};", ""]))


if __name__ == "__main__":
    main()
