"""NVIDIA's compiler for the tests: the one of requirements-dev.txt, else one that is on the PATH.

The package has no `libcudart.so` to link against, only the library itself: a link in a folder of
the test's stands in.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

ARCHITECTURE = "-arch=sm_75"  # of a soft GPU


def packaged() -> Path | None:
    """Return the folder of the package, or None without it."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or []
    found = [Path(root) / "cu13" for root in roots]
    return next((folder for folder in found if (folder / "bin" / "nvcc").exists()), None)


def present() -> bool:
    """Is there a compiler?"""
    return packaged() is not None or shutil.which("nvcc") is not None


def command(folder: Path, *options: str) -> list[str]:
    """Return the beginning of a command line; `folder` is one that the test may write to."""
    root = packaged()
    if root is None:
        return [shutil.which("nvcc") or "nvcc", ARCHITECTURE, *options]
    links = folder / "libraries"
    links.mkdir(exist_ok=True)
    if not (links / "libcudart.so").exists():
        (links / "libcudart.so").symlink_to(root / "lib" / "libcudart.so.13")
    folders = [f"-L{links}", f"-L{root / 'lib'}", "-Xlinker", f"-rpath={root / 'lib'}"]
    return [str(root / "bin" / "nvcc"), ARCHITECTURE, *folders, *options]
