"""Fixtures shared by the Python tests. They test the installed package, not the source tree."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import pyft
from pyft._native import native_dir

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))  # tests/job.py
pytest_plugins = ["required"]

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Lines of ranks that share an output stay whole: unbuffered, Python writes the end of a line apart.
# What a test waits for is flushed by the program that prints it.
os.environ.pop("PYTHONUNBUFFERED", None)

# What tests start imports less of PyTorch.
_PATHS = (str(TESTS / "startup"), os.environ.get("PYTHONPATH", ""))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

# Named by meson in the tests that it runs itself.
os.environ.setdefault("SOFTGPU_LIBRARY", str(native_dir() / "libsoftgpu.so"))
# `meson test` runs these, with the files it has built.
collect_ignore = ["softgpu/exec", "softgpu/decode"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Pictures in the documents come from the tests, when they are asked for."""
    parser.addoption("--pictures", metavar="DIR", help="write the pictures of docs/ into DIR")


def pytest_report_header() -> str:
    """`python -m pytest` would test the source tree, which has no native files."""
    return f"pyft: {Path(pyft.__file__).parent}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies in tests/e2e needs PyTorch on the soft GPU."""
    for item in items:
        if "e2e" in Path(item.fspath).parts:
            item.add_marker(pytest.mark.soft)


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep jobs of tests out of the user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def need() -> object:
    """`need("torch", condition, why)` skips, or fails where PYFT_REQUIRE names the need."""

    from required import refuses

    def check(name: str, condition: bool, why: str) -> None:
        if condition:
            return
        if refuses(f"[{name}]: "):
            pytest.fail(f"[{name}] is required: {why}")
        pytest.skip(f"[{name}]: {why}")

    return check
