"""What tools/build/compile_kernel.py puts into a server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tools" / "build"
KERNEL = ROOT / "proxy" / "checkpoint" / "digest" / "kernel.cu"


def compile_kernel(out: Path, library: str) -> str:
    script = [sys.executable, str(BUILD / "compile_kernel.py"), str(KERNEL), str(ROOT / "proxy")]
    subprocess.run([*script, library, str(out)], check=True)
    return out.read_text()


def test_there_is_an_image_for_each_architecture(tmp_path: Path) -> None:
    found = subprocess.check_output(
        [sys.executable, str(BUILD / "find_deps.py"), "nvrtc-lib"], text=True
    )
    text = compile_kernel(tmp_path / "images.cc", found.strip())
    images = [int(number) for number in re.findall(r"\{(\d+), image_\1, ", text)]
    assert {0, 75, 80, 86, 89, 90, 100, 120} <= set(images)
    elf, ptx = "{\n  127,69,76,70,", "{\n  " + ",".join(str(b) for b in b"//\n// Gen")
    for number in images:
        assert f"image_{number}[] = {elf if number else ptx}" in text


def test_a_build_without_nvrtc_has_none(tmp_path: Path) -> None:
    out = tmp_path / "images.cc"
    assert "return {};" in compile_kernel(out, "")
    compiler = shutil.which("c++") or pytest.skip("[compiler]: no C++ compiler")
    include = f"-I{ROOT / 'proxy'}"
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", include, str(out)], check=True)
