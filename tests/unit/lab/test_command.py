"""`pyft lab` is found when it is asked for, and says what to install when it cannot run."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from pyft.cli import lab
from pyft.errors import UsageError


class Entry:
    """Stands for the entry point of a package that is or is not whole."""

    def __init__(self, missing: str = "") -> None:
        self.missing = missing
        self.taken: list[list[str]] = []

    def load(self) -> object:
        if self.missing:
            raise ModuleNotFoundError(f"No module named {self.missing}", name=self.missing)
        return self.taken.append


def found(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(lab.metadata, "entry_points", lambda **_: entries)


def test_all_words_go_to_the_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry()
    found(monkeypatch, entry)
    lab.lab(SimpleNamespace(args=["verify", "--only", "reft"]))
    assert entry.taken == [["verify", "--only", "reft"]]


def test_without_the_extra_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found(monkeypatch, Entry(missing="numba"))
    with pytest.raises(UsageError, match=r"\[numba\] is not installed: pip install 'pyft\[lab\]'"):
        lab.lab(SimpleNamespace(args=[]))
    found(monkeypatch)
    with pytest.raises(UsageError, match=r"\[pyft_lab\] is not installed"):
        lab.lab(SimpleNamespace(args=[]))


def test_help_of_the_lab_imports_neither_torch_nor_numba() -> None:
    code = "import sys, pyft_lab.command.cli; print({'torch', 'numba', 'scipy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr
