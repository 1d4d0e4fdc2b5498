"""The check of offsets finds those that are written by hand, and the tree has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check" / "offsets.py"


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False
    )


def test_the_tree_has_none() -> None:
    result = run(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("pyft/agent/bad.py", "import os\nimport struct\n", 2),
        ("pyft/trace/bad.py", "from struct import unpack\n", 1),
        ("pyft/agent/bad.py", "import mmap\n", 1),
        ("pyft/agent/bad.py", "import os\n\nraw = os.pread(fd, 8, place)\n", 3),
        ("pyft/agent/bad.py", "import os\n\nos.preadv(fd, [cell], place)\n", 3),
        ("pyft/agent/bad.py", "from os import pread\n", 1),
        ("pyft/agent/bad.py", "word = int.from_bytes(raw[:8], 'little')\n", 1),
        ("pyft/operate/bad.py", "import os\n\nos.pwrite(fd, data, 4096)\n", 3),
        ("pyft/agent/channel/untrusted.py", "import os\n\nos.pread(fd, 8, 4096)\n", 3),
        ("pyft/agent/channel/untrusted.py", "import os\n\nos.pread(fd, 8, offset=4096)\n", 3),
        ("pyft/agent/channel/untrusted.py", "os.pread(fd, field.size, field.offset)\n", 0),
        ("pyft/agent/bad.py", 'beat = CONTROL_PAGE["heartbeat_ns"].get(fd)\n', 1),
        ("pyft/trace/bad.py", 'beat = CONTROL_PAGE["heartbeat_ns"].get(fd)\n', 1),
        ("pyft/agent/good.py", 'value = notes["servers"].get("epoch")\n', 0),
        ("pyft/trace/bad.py", "words = path.read_bytes()[begin:end]\n", 1),
        ("pyft/agent/bad.py", "file.seek(place)\nraw = file.read(8)\n", 1),
        ("pyft/agent/process/notes.py", "file.seek(0)\n", 0),
        ("pyft/hosts/good.py", "size = int.from_bytes(data[:4], 'big')\n", 0),
        ("tests/unit/bad.py", "import os\n\nos.pwrite(fd, data, 540)\n", 3),
        ("tests/e2e/programs/bad.py", 'status = struct.unpack_from("<I", page, 32)\n', 1),
        ("tests/wire/bad.py", 'HEADER = struct.Struct("<IHHQIIQQQ")\n', 1),
        ("tests/unit/bad.py", 'PROGRAM = """\nimport os\nos.pread(fd, 4, 24)\n"""\n', 3),
        ("tests/unit/bad.py", 'PROGRAM = f"""\nimport os {x}\nput({y})\n"""\n', 0),
        ("tests/unit/bad.py", 'PROGRAM = f"""\nimport os\nos.pwrite({fd}, x, 24)\n"""\n', 3),
        ("tests/unit/good.py", "FIELD.put(fd, 1)\nos.pread(fd, 4096, 0)\n", 0),
        ("tests/softgpu/good.py", 'struct.unpack_from("<Q", cubin, 40)\n', 0),
        ("pyft/wire/view.py", "import struct\n", 0),
    ],
)
def test_what_is_refused(tmp_path: Path, file: str, text: str, line: int) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    result = run(tmp_path)
    assert result.returncode == (1 if line else 0), result.stdout
    if line:
        assert result.stdout.startswith(f"{file}:{line}: ")
