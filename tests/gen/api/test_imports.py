"""Every CUDA symbol that the installed torch imports is exported by the shim."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import api_records  # noqa: E402
import emit_wire  # noqa: E402

FAMILIES = re.compile(
    r"(__cuda|cuda|cu[A-Z]|cublas|cudnn|nccl|cufft|curand|cusolver|cusparse|cupti|nvshmem|nvrtc|nvJit)\w+$"
)


def torch_imports() -> set[str]:
    """Return the undefined CUDA symbols of torch's libraries."""
    spec = util.find_spec("torch")
    if not spec or not spec.origin or not shutil.which("nm"):
        pytest.skip("[torch]: it or nm is not installed")
    symbols: set[str] = set()
    for library in sorted((Path(spec.origin).parent / "lib").glob("lib*.so")):
        command = ["nm", "-D", "--undefined-only", str(library)]
        listing = subprocess.run(command, capture_output=True, text=True).stdout
        # A weak one is of something that may be absent.
        found = [line.split() for line in listing.splitlines() if line]
        symbols |= {words[-1].split("@")[0] for words in found if words[-2] != "w"}
    return {s for s in symbols if FAMILIES.match(s)}


def test_no_import_of_torch_is_left_unbound() -> None:
    imports = torch_imports()
    if not imports:
        pytest.skip("[torch]: a build without CUDA libraries")
    api = api_records.load(ROOT / "proxy" / "api")
    foreign = {s for s in imports if s.startswith(tuple(api.vendor))}
    assert foreign  # or the list of the vendor's own libraries is out of date
    assert sorted(imports - set(emit_wire.exported(api)) - foreign) == []
