"""`pyft doctor` about the installed PyTorch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyft.cli import doctor
from pyft.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "tests" / "wheels" / "run.py"


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


@pytest.mark.parametrize("page", ["README.md", "docs/operate/run.md"])
def test_documents_say_of_versions_what_the_doctor_says(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert f"{doctor.TESTED}." in text
    assert doctor.INSTALL_TORCH.removeprefix("pip install ") in text


def test_what_is_installed_is_what_is_tested() -> None:
    pinned = f"torch=={doctor.TORCH_VERSION}\n"
    for file in ("requirements-dev.txt", "Dockerfile"):
        assert pinned in (ROOT / file).read_text()


FINE = [doctor.ok("torch", "2.11.0 with CUDA"), doctor.ok("soft GPU", "loads")]


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ((), "ready for soft GPUs: pyft run --gpus soft:1 -- python train.py"),
        ((doctor.warn("NVIDIA driver", "none", "x"),), "ready for soft GPUs: "),
        ((doctor.fail("driver's version", "old", "x"),), "ready for soft GPUs: "),
        ((doctor.warn("torch", "not installed", "x"),), "not ready for soft GPUs: see torch above"),
        (
            (doctor.fail("BLAS", "none", "x"), doctor.warn("soft GPU", "none", "x")),
            "not ready for soft GPUs: see BLAS, soft GPU above",
        ),
    ],
)
def test_the_end_is_a_verdict(more: tuple[doctor.Finding, ...], end: str) -> None:
    assert doctor.verdict([*FINE, *more]).startswith(end)


def test_the_verdict_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: FINE[0],))
    said = CliRunner().invoke(app, ["doctor"]).output
    assert said.splitlines()[-1] == doctor.verdict(FINE)


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (doctor.ok("torch", "2.11.0 with CUDA"), 0),
        (doctor.warn("torch", "2.9.0 with CUDA, not tried", "install another"), 0),
        (doctor.warn("torch", doctor.NOT_INSTALLED, "install it"), 1),
        (doctor.fail("driver's version", "too old", "install another"), 1),
    ],
)
def test_the_exit_code_says_what_the_verdict_says(
    monkeypatch: pytest.MonkeyPatch, finding: doctor.Finding, code: int
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: finding,))
    for options in ([], ["--json"]):
        assert CliRunner().invoke(app, ["doctor", *options]).exit_code == code


def test_criu_can_be_had_without_pyfts_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.criu, "find", lambda: None)
    found = doctor.check_images()
    assert "install CRIU 4.2.1 or newer, or run tools/get/criu of pyft's sources" in found.text


@pytest.mark.parametrize("tracks", [True, False])
def test_whether_most_of_an_image_is_written_while_all_run(
    monkeypatch: pytest.MonkeyPatch, tracks: bool
) -> None:
    monkeypatch.setattr(doctor.criu, "lacks", lambda _: "")
    monkeypatch.setattr(doctor.criu, "find", lambda: Path("criu"))
    monkeypatch.setattr(doctor.criu, "tracks_writes", lambda _: tracks)
    found = doctor.check_images()
    assert found.status == "ok"
    assert ("while all run" in found.text) == tracks
    assert ("CONFIG_MEM_SOFT_DIRTY" in found.text) != tracks
