"""Changes bytes at random: one input of a fuzzer from others."""

from __future__ import annotations

import random
from collections.abc import Sequence

EXTREMES = (0, 1, 7, 63, 64, 4096, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
MOST_BYTES = 1 << 16


def mutated(dice: random.Random, corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """Return one of the corpus, changed one to eight times; `words` are what the format knows."""
    data = bytearray(dice.choice(corpus))
    for _ in range(1 << dice.randrange(4)):
        _change(dice, data, corpus, words)
    return bytes(data[:MOST_BYTES])


def _change(
    dice: random.Random, data: bytearray, corpus: Sequence[bytes], words: Sequence[bytes]
) -> None:
    at = dice.randrange(len(data) + 1)
    kind = dice.randrange(0 if data else 2, 8 if words else 7)
    if kind == 0:
        data[at % len(data)] ^= 1 << dice.randrange(8)
    elif kind == 1:
        data[at % len(data)] = dice.randrange(256)
    elif kind == 2:
        size = dice.choice((1, 2, 4, 8))
        value = dice.choice((*EXTREMES, dice.getrandbits(64))) & ((1 << 8 * size) - 1)
        at -= at % size if dice.random() < 0.8 else 0
        data[at : at + size] = value.to_bytes(size, "little")
    elif kind == 3:
        del data[at : at + dice.choice((1, 2, 8, 64))]
    elif kind == 4:
        data[at:at] = dice.randbytes(dice.choice((1, 2, 8, 64)))
    elif kind == 5:
        begin = dice.randrange(len(data) + 1)
        data[at:at] = data[begin : begin + dice.choice((1, 4, 8, 40, 64))]
    elif kind == 6:
        other = dice.choice(corpus)
        begin = dice.randrange(len(other) + 1)
        data[at:] = other[begin:]
    else:
        word = dice.choice(words)
        data[at : at + dice.choice((0, len(word)))] = word
