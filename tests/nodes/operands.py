"""Which bytes of its parameters a kernel's code can read: from the operands of its instructions."""

from __future__ import annotations

import functools
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/softgpu/decode"))
import wheel  # noqa: E402

DECODE_DUMP = ROOT / "build/meson/tests/softgpu/decode/decode_dump"
FIRST = 0x160  # of the parameters, in constant bank 0
OPERAND = re.compile(r"c\[0x0\]\[([^\]]*)\]")
# Instructions whose operands have four bytes. All others count with the most that there are.
WORDS = re.compile(
    r"^(IADD3|IMAD|MOV|FMNMX|FMUL|FADD|FFMA|FSEL|FSETP|ISETP|SHF|LEA|LOP3|SEL|IMNMX|PRMT|I2F|MUFU"
    r"|FSET|FCHK|IABS|R2P)(?=[. ])"
)
WIDE = re.compile(r"\.(WIDE|64|S64|U64|F64)\b")
MOST = 16


def lacks() -> str:
    """Return why no code can be looked at, nothing if it can."""
    if not DECODE_DUMP.exists():
        return f"there is no [{DECODE_DUMP}]: `make programs` makes it"
    return "" if wheel.load_zstd() else "there is no [libzstd]"


def _text(image: bytes, kernel: str) -> bytes:
    """Return the code of a kernel for a soft GPU; nothing if it is not there."""
    zstd = wheel.load_zstd()
    for start, size, flags, full in wheel.entries(image, wheel.SM_75):
        data = image[start : start + size]
        cubin = wheel.decompress(zstd, data, full) if flags & wheel.FLAG_ZSTD else data
        for name, text in wheel.text_sections(cubin):
            if name == kernel:
                return text
    return b""


def _instructions(text: bytes) -> list[str]:
    """Return mnemonic and operands of each instruction."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        lines = subprocess.run(
            [DECODE_DUMP, file.name], capture_output=True, text=True, check=False
        ).stdout.splitlines()
    return [re.sub(r"^\S+ (@\S+ )?", "", line) for line in lines]


@functools.cache
def unread(image: bytes, kernel: str, size: int) -> frozenset[int]:
    """Return the bytes of `size` bytes of parameters that no instruction can read.

    None, if an instruction takes an address from a register, or calls code that lies elsewhere.
    """
    instructions = _instructions(_text(image, kernel))
    read: set[int] = set()
    for one in instructions:
        if "ERROR" in one or one.startswith("CALL.ABS"):
            return frozenset()
        word = WORDS.match(one) and not WIDE.search(one.split()[0])
        for operand in OPERAND.findall(one):
            if not re.fullmatch(r"0x[0-9a-f]+", operand):
                return frozenset()
            first = int(operand, 16) - FIRST
            read |= set(range(first, first + (4 if word else 8 if WORDS.match(one) else MOST)))
    return frozenset(range(size)) - read if instructions else frozenset()


LAUNCH_BYTES = 64  # of cmd::cuLaunchKernel, before the parameters


def without_unread(body: bytes, kernels: dict[int, tuple[str, bytes]]) -> bytes:
    """Return the body of a launch, with zeros where its kernel cannot read."""
    name, image = kernels.get(struct.unpack_from("<Q", body)[0], ("", b""))
    result = bytearray(body)
    for at in unread(image, name, len(body) - LAUNCH_BYTES):
        result[LAUNCH_BYTES + at] = 0
    return bytes(result)
