"""The generator of the instruction table accepts isa/ok_*.isa and refuses isa/err_*.isa.

Each file names in its line "# expect:" a part of the header, or of the refusal.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "isa"
ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "tools/gen/gen_isa.py"


def generate(table: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            str(GENERATOR),
            str(table),
            "--header",
            str(folder / "isa.h"),
            "--inc",
            str(folder / "isa.inc"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def expectation(table: Path) -> str:
    match = re.search(r"^# expect: (.*)$", table.read_text(), re.MULTILINE)
    assert match, f"[{table.name}] has no line '# expect:'"
    return match[1]


@pytest.mark.parametrize("table", sorted(FOLDER.glob("ok_*.isa")), ids=lambda path: path.stem)
def test_accepts(table: Path, tmp_path: Path) -> None:
    done = generate(table, tmp_path)
    assert done.returncode == 0, done.stderr
    assert expectation(table) in (tmp_path / "isa.h").read_text()


@pytest.mark.parametrize("table", sorted(FOLDER.glob("err_*.isa")), ids=lambda path: path.stem)
def test_refuses(table: Path, tmp_path: Path) -> None:
    done = generate(table, tmp_path)
    assert done.returncode == 1
    assert expectation(table) in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "isa.h").exists()


def test_the_real_table_knows_every_opcode_of_the_samples(tmp_path: Path) -> None:
    assert generate(ROOT / "softgpu/isa/sm75.isa", tmp_path).returncode == 0
    samples = (ROOT / "tests/softgpu/decode/sm75/samples.txt").read_text().splitlines()
    opcodes = {line.split()[0][-3:] for line in samples if not line.startswith("#")}
    table = (tmp_path / "isa.inc").read_text()
    assert {opcode for opcode in opcodes if f" 0x{opcode}, " not in table} == set()
