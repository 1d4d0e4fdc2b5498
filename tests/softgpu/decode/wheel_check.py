"""Decode the sm_75 code of a wheel and compare our text with the vendor's."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

import vendor
import wheel

ERROR_LINE = re.compile(r"^([0-9a-f]+) ERROR (.*)$", re.MULTILINE)
WORDS_AT_ONCE = 1 << 18  # bounds the memory that the texts take


def undecoded(cubin: bytes, path: Path) -> tuple[int, list[str]]:
    """Count of the cubin's instructions, and a sentence for each that we cannot decode."""
    sections = list(wheel.text_sections(cubin))
    starts, end = [], 0
    for _, text in sections:
        starts.append(end)
        end += len(text)
    code = b"".join(text for _, text in sections)
    output = vendor.run([vendor.decode_dump(), "-q"], code, path, (0, 1))
    sentences = []
    for at, error in ERROR_LINE.findall(output):
        section = bisect_right(starts, int(at, 16)) - 1
        offset = int(at, 16) - starts[section]
        sentences.append(f"kernel [{sections[section][0]}] offset [{offset:#x}]: {error}")
    return end // vendor.INSTRUCTION_BYTES, sentences


def add_words(cubin: bytes, words: set[bytes]) -> None:
    """Add the cubin's distinct instructions, less their scheduling bits."""
    for _, text in wheel.text_sections(cubin):
        distinct = set(struct.iter_unpack(f"{vendor.INSTRUCTION_BYTES}s", text))
        words.update(vendor.without_scheduling(word) for (word,) in distinct)


def different(words: Iterable[bytes], path: Path) -> list[tuple[str, str]]:
    """The (our, vendor's) texts of those words where they differ."""
    ordered, found = sorted(words), []
    for at in range(0, len(ordered), WORDS_AT_ONCE):
        found += vendor.different_texts(b"".join(ordered[at : at + WORDS_AT_ONCE]), path)
    return found
