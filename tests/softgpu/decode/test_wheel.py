"""Decodes the sm_75 code of the installed PyTorch wheel and compares the text with nvdisasm.

$DECODE_DUMP names the decode_dump binary. SOFTGPU_ALL_CUBINS=1 takes all cubins instead of a sample.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import wheel

ALL_CUBINS = os.environ.get("SOFTGPU_ALL_CUBINS") == "1"
SAMPLE_STEP = 53  # prime, so that the sample does not follow the order of the library
INSTRUCTION_BYTES = 16
TEXT_LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", re.MULTILINE)


def decode_dump() -> str:
    path = os.environ.get("DECODE_DUMP")
    if not path:
        pytest.skip("DECODE_DUMP does not name the decode_dump binary (run the test through meson)")
    return path


def nvdisasm() -> str:
    spec = importlib.util.find_spec("triton")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "backends/nvidia/bin/nvdisasm"
        if bundled.exists():
            return str(bundled)
    found = shutil.which("nvdisasm")
    if not found:
        pytest.skip("nvdisasm is neither in the triton wheel nor on the path")
    return found


@pytest.fixture(scope="module")
def cubins() -> tuple[wheel.Wheel, list[int]]:
    library, zstd = wheel.torch_cuda_library(), wheel.load_zstd()
    if library is None or zstd is None:
        pytest.skip("there is no CUDA build of torch, or no libzstd to unpack its code")
    opened = wheel.Wheel(library, zstd)
    return opened, list(range(0, len(opened.entries), 1 if ALL_CUBINS else SAMPLE_STEP))


def without_scheduling(word: bytes) -> bytes:
    """Equal bits 105..127 for all words, so that equal instructions are equal words.

    nvdisasm checks these bits too; the value here (no barriers) suits every instruction.
    """
    return word[:13] + bytes((word[13] & 1 | 0xE2, 0x0F, 0x00))


def squeeze(text: str) -> str:
    """Vendor text without the reuse hints and its irregular blanks."""
    text = " ".join(text.replace(".reuse", "").split())
    return text.replace(" ,", ",").replace("] [", "][")


def run(command: list[str], data: bytes, path: Path) -> str:
    path.write_bytes(data)
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stderr or done.stdout)[:2000]
    return done.stdout


def test_every_word_decodes(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    for index in indices:
        code = b"".join(text for _, text in wheel.text_sections(opened.cubin(index)))
        run([decode_dump(), "-q"], code, tmp_path / "code")


def test_text_is_the_vendors(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    words: dict[bytes, None] = {}
    for index in indices:
        for _, text in wheel.text_sections(opened.cubin(index)):
            words.update(
                (without_scheduling(text[at : at + INSTRUCTION_BYTES]), None)
                for at in range(0, len(text), INSTRUCTION_BYTES)
            )
    code = b"".join(words)
    ours = [
        line.split(" ", 1)[1] for line in run([decode_dump()], code, tmp_path / "code").splitlines()
    ]
    vendor = [
        squeeze(text)
        for text in TEXT_LINE.findall(run([nvdisasm(), "-b", "SM75"], code, tmp_path / "code"))
    ]
    assert len(ours) == len(vendor) == len(words)
    different = [(a, b) for a, b in zip(ours, vendor, strict=True) if a != b]
    assert different[:20] == []
