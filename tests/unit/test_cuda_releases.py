"""pyft/_native/cuda_releases.py: the one home of what goes with which CUDA."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyft._native import cuda_releases
from pyft.cli import doctor

ROOT = Path(__file__).resolve().parents[2]
VERSION = "NVRM version: NVIDIA UNIX {}  {}  Tue Mar 12 23:54:07 UTC 2024\nGCC version: 12"


def test_the_servers_libraries_are_those_of_the_table() -> None:
    text = (ROOT / "proxy" / "backend" / "cuda.cc").read_text()
    for release, table in ((12, "kFiles12"), (13, "kFiles")):
        listed = re.search(rf"{table}\[\] = \{{(.*?)\}};", text, re.DOTALL)
        assert listed is not None
        assert re.findall(r'"(.*?)"', listed[1]) == list(cuda_releases.LIBRARIES[release].values())
    files = cuda_releases.LIBRARIES[13]  # which pyft is built with
    for place in (
        "tools/build/find_deps.py",
        "tools/gpu/measurements.py",
        "tools/gen/vendor_exports.py",
    ):
        names = re.findall(r"lib(?:cu|nccl|nvrtc)\w*\.so\.\d+", (ROOT / place).read_text())
        known = {*files.values(), "libcusparseLt.so.0", "libnvrtc.so.13"}
        assert set(names) <= known, place


def test_both_releases_have_all_libraries() -> None:
    assert len({tuple(files) for files in cuda_releases.LIBRARIES.values()}) == 1
    assert set(cuda_releases.OLDEST_DRIVER) == set(cuda_releases.LIBRARIES)


@pytest.mark.parametrize(
    ("branch", "torch", "said"),
    [
        (580, (13, 0), ""),
        (595, (13, 2), ""),
        (
            550,
            (13, 0),
            "driver 550 is for CUDA [12.4], PyTorch is built with [13.0]: install driver 580",
        ),
        (540, (13, 0), "driver 540 is for CUDA [12.2]"),
        (
            470,
            (12, 8),
            "driver 470 is for CUDA [11.0], PyTorch is built with [12.8]: install driver 525",
        ),
        (535, (12, 8), ""),
        (550, (12, 8), ""),
        (580, (12, 6), ""),
        (580, (11, 8), "PyTorch is built with CUDA [11.8]: on real GPUs pyft needs one of CUDA 12"),
    ],
)
def test_what_does_not_fit_is_named(branch: int, torch: tuple[int, int], said: str) -> None:
    got = cuda_releases.mismatch(branch, torch)
    assert got.startswith(said) or said in got
    assert bool(got) == bool(said)


@pytest.mark.parametrize(
    ("required", "cuda"),
    [
        (["numpy", 'cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"'], (13, 0)),
        (["nvidia-cuda-runtime-cu12==12.8.90; platform_system == 'Linux'"], (12, 8)),
        (["filelock"], None),
        (None, None),
    ],
)
def test_torchs_cuda_is_what_it_requires(
    required: list[str] | None, cuda: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_releases.metadata, "requires", lambda _: required)
    assert cuda_releases.cuda_of_torch() == cuda


@pytest.mark.parametrize(
    ("kind", "version", "status"),
    [
        ("x86_64 Kernel Module", "550.163.01", "fail"),
        ("Open Kernel Module for x86_64", "580.95.05", "ok"),
    ],
)
def test_the_doctor_says_so(
    kind: str, version: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "version"
    monkeypatch.setattr(cuda_releases, "DRIVER_VERSION", file)
    monkeypatch.setattr(cuda_releases, "cuda_of_torch", lambda: (13, 0))
    assert doctor.check_driver_version().text == "no driver: nothing to compare"
    file.write_text(VERSION.format(kind, version))
    found = doctor.check_driver_version()
    assert found.status == status
    assert version.split(".", maxsplit=1)[0] in found.text
