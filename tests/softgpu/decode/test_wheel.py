"""Decodes the sm_75 code of the installed PyTorch wheel and compares the text with nvdisasm.

SOFTGPU_ALL_CUBINS=1 takes all cubins (a minute) instead of a sample.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import vendor
import wheel

ALL_CUBINS = os.environ.get("SOFTGPU_ALL_CUBINS") == "1"
SAMPLE_STEP = 53  # prime, so that the sample does not follow the order of the library
INSTRUCTION_BYTES = 16


@pytest.fixture(scope="module")
def cubins() -> tuple[wheel.Wheel, list[int]]:
    library, zstd = wheel.torch_cuda_library(), wheel.load_zstd()
    if library is None or zstd is None:
        pytest.skip("there is no CUDA build of torch, or no libzstd to unpack its code")
    opened = wheel.Wheel(library, zstd)
    return opened, list(range(0, len(opened.entries), 1 if ALL_CUBINS else SAMPLE_STEP))


def test_every_word_decodes(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    for index in indices:
        code = b"".join(text for _, text in wheel.text_sections(opened.cubin(index)))
        vendor.run([vendor.decode_dump(), "-q"], code, tmp_path / "code")


def test_text_is_the_vendors(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    words: dict[bytes, None] = {}
    for index in indices:
        for _, text in wheel.text_sections(opened.cubin(index)):
            words.update(
                (vendor.without_scheduling(text[at : at + INSTRUCTION_BYTES]), None)
                for at in range(0, len(text), INSTRUCTION_BYTES)
            )
    vendor.check_texts(b"".join(words), tmp_path / "code")
