"""Jobs with a server and a client that only speak the protocols."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job import Job

from pyft import _native

sys.path.insert(0, str(Path(__file__).parent))
from stand_ins import CLIENT, SERVER, Start  # noqa: E402


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of native files in which only libpyft_native.so is real."""
    folder = tmp_path / "native"
    folder.mkdir()
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    empty = folder / "libpyft_shim.so"
    subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    for name in ("pyft_nvml", "softgpu", "softgpu_nvml", "pyft_collectives", "flexccl"):
        shutil.copy(empty, folder / f"lib{name}.so")
    (folder / "pyft-server").write_text(SERVER)
    (folder / "pyft-server").chmod(0o755)
    (folder / "libpyft_native.so").symlink_to(_native.native_dir() / "libpyft_native.so")
    monkeypatch.setenv("PYFT_NATIVE_DIR", str(folder))
    return folder


@pytest.fixture
def start(tmp_path: Path, native: Path) -> Iterator[Start]:
    jobs = []

    def run(
        wanted: int,
        *options: str,
        gpus: str = "soft:1",
        command: tuple[str, ...] = (sys.executable, "-c", CLIENT),
        **variables: str,
    ) -> Job:
        environment = {"WANTED": str(wanted), "GIVEN": str(tmp_path / "given"), **variables}
        line = ("--gpus", gpus, "--protect", "capture", "--report", str(tmp_path / "r"), *options)
        jobs.append(Job(tmp_path, command, options=line, environment=environment))
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill_everything()
