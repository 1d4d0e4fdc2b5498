"""The two disassemblers that tests and tools/check/decode compare: ours and the vendor's.

vendor.py WORD...    what the vendor's says of words of 128 bits, each written as HIGH_LOW
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INSTRUCTION_BYTES = 16
TEXT_LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", re.MULTILINE)


class Missing(Exception):
    """A disassembler is not on this machine."""


def decode_dump() -> str:
    path = os.environ.get("DECODE_DUMP", "")
    if not Path(path).is_file():
        raise Missing(f"DECODE_DUMP [{path}] does not name the decode_dump binary (meson sets it)")
    return path


def nvdisasm() -> str:
    spec = importlib.util.find_spec("triton")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "backends/nvidia/bin/nvdisasm"
        if bundled.exists():
            return str(bundled)
    found = shutil.which("nvdisasm")
    if not found:
        raise Missing("nvdisasm is neither in the triton wheel nor on the path")
    return found


def without_scheduling(word: bytes) -> bytes:
    """Equal bits 105..127 for all words, so that equal instructions are equal words.

    nvdisasm checks these bits too; the value here (no barriers) suits every instruction.
    """
    return word[:13] + bytes((word[13] & 1 | 0xE2, 0x0F, 0x00))


def squeeze(text: str) -> str:
    """Vendor text without the reuse hints and its irregular blanks."""
    text = " ".join(text.replace(".reuse", "").split())
    return text.replace(" ,", ",").replace("] [", "][")


def run(command: list[str], data: bytes, path: Path, accepted: tuple[int, ...] = (0,)) -> str:
    path.write_bytes(data)
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode in accepted, (done.stderr or done.stdout)[:2000]
    return done.stdout


def texts(code: bytes, path: Path, arch: str = "SM75") -> list[tuple[str, str]]:
    """The (our, vendor's) texts of the words of `code`."""
    # Status 1: some words have no text but an error, which is a difference too.
    lines = run([decode_dump()], code, path, (0, 1)).splitlines()
    ours = [line.split(" ", 1)[1] for line in lines]
    said = run([nvdisasm(), "-b", arch], code, path)
    vendor = [squeeze(text) for text in TEXT_LINE.findall(said)]
    assert len(ours) == len(vendor) == len(code) // INSTRUCTION_BYTES
    return list(zip(ours, vendor, strict=True))


def different_texts(code: bytes, path: Path) -> list[tuple[str, str]]:
    """The (our, vendor's) texts of the words of `code` where they differ."""
    return [(a, b) for a, b in texts(code, path) if a != b]


def check_texts(code: bytes, path: Path) -> None:
    """Both disassemblers print the same for every word of `code`."""
    different = different_texts(code, path)
    assert not different, different[:20]


def main(*words: str) -> None:
    """Print the vendor's text of each word."""
    halves = (map(lambda part: int(part, 16), word.split("_")) for word in words)
    code = b"".join(
        without_scheduling(low.to_bytes(8, "little") + high.to_bytes(8, "little"))
        for high, low in halves
    )
    with tempfile.NamedTemporaryFile() as file:
        text = run([nvdisasm(), "-b", "SM75"], code, Path(file.name), (0, 1))
    print("\n".join(map(squeeze, TEXT_LINE.findall(text))) or "no instruction")


if __name__ == "__main__":
    main(*sys.argv[1:])
