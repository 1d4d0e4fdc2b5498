"""Decodes the sm_75 code of the installed PyTorch wheel and compares the text with nvdisasm.

tools/check/decode --wheel does the same with all cubins instead of a sample.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import vendor
import wheel
import wheel_check

SAMPLE_STEP = 53  # prime, so that the sample does not follow the order of the library
TOOL = Path(__file__).parents[3] / "tools/check/decode.py"


@pytest.fixture(scope="module")
def cubins() -> tuple[wheel.Wheel, list[int]]:
    library, zstd = wheel.torch_cuda_library(), wheel.load_zstd()
    if library is None or zstd is None:
        pytest.skip("[torch]: no CUDA build of it, or no libzstd to unpack its code")
    opened = wheel.Wheel(library, zstd)
    return opened, list(range(0, len(opened.entries), SAMPLE_STEP))


def test_every_word_decodes(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    for index in indices:
        count, errors = wheel_check.undecoded(opened.cubin(index), tmp_path / "code")
        assert count > 0
        assert not errors, errors[:20]


def test_text_is_the_vendors(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    opened, indices = cubins
    words: set[bytes] = set()
    for index in indices:
        wheel_check.add_words(opened.cubin(index), words)
    vendor.check_texts(b"".join(sorted(words)), tmp_path / "code")


def run_tool(decode_dump: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--wheel", "--every", "200"]
    environment = os.environ | {"DECODE_DUMP": decode_dump}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_tool_counts(cubins: tuple[wheel.Wheel, list[int]]) -> None:
    done = run_tool(vendor.decode_dump())
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("undecoded: 0\ndifferent: 0\n")


def test_tool_reports(cubins: tuple[wheel.Wheel, list[int]], tmp_path: Path) -> None:
    """A decoder that knows neither EXIT nor how to spell NOP."""
    broken = tmp_path / "decode_dump"
    edits = "s/^([0-9a-f]+) EXIT$/\\1 ERROR no form/; s/ NOP$/ NOOP/"
    broken.write_text(f"#!/bin/sh\n{vendor.decode_dump()} \"${{2:-$1}}\" | sed -E '{edits}'\n")
    broken.chmod(0o755)
    done = run_tool(str(broken))
    assert done.returncode == 1
    assert "offset [0x" in done.stdout
    assert "ours [NOOP] vendor [NOP]" in done.stdout
    assert "undecoded: 0" not in done.stdout
