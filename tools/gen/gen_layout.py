"""Write pyft/wire/layout.py, as a program says it that is compiled with the real headers.

`gen_layout.py --root .` writes it; tests/unit/test_layout.py says when it is stale.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = "pyft/wire/layout.py"


def layout() -> str:
    """Return the module's text."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    source = Path(__file__).with_name("layout_view.cc")
    folders = [f"-I{ROOT / folder}" for folder in ("proxy", "proxy/include", "flexccl/include")]
    flags = ["-std=c++20", "-Wno-invalid-offsetof", *folders]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "layout_view")
        subprocess.run([*compiler, *flags, str(source), "-o", program], check=True)
        return subprocess.check_output([program], text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="write it there")
    args = parser.parse_args()
    (args.root / KEPT).write_text(layout())


if __name__ == "__main__":
    main()
