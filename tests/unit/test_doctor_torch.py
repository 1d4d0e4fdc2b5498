"""`pyft doctor` about the installed PyTorch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from pyft.cli import doctor

WHEELS = Path(__file__).resolve().parents[1] / "wheels" / "run.py"


def test_the_versions_that_train_are_those_that_are_tried() -> None:
    listed = re.search(r"^VERSIONS = \[(.*?)\]", WHEELS.read_text(), re.MULTILINE)
    assert listed is not None
    assert tuple(re.findall(r'"(.*?)"', listed[1])) == doctor.TRIED_VERSIONS


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.11.0+cu130", "ok"), ("2.8.0+cu128", "ok"), ("2.7.1", "warn"), ("2.11.0+cpu", "fail")],
)
def test_each_version_has_a_word(
    version: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: version)
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    if status != "fail":
        (folder / "lib" / "libtorch_cuda.so").touch()
    spec = importlib.util.spec_from_file_location("torch", folder / "__init__.py")
    monkeypatch.setattr(doctor, "find_spec", lambda name: spec)
    found = doctor.check_torch()
    assert (found.status, version in found.text) == (status, True)
