"""The check of terms finds what it is there to find, and the tree has none of it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check" / "terms.py"
GLOSSARY = """# Glossary

| term | meaning | defined in | was |
|---|---|---|---|
| supervisor | holds what must survive | `a.py` | `keeper` |
| quiesce | wait for all streams | `a.h` | `stand_still` |
| operation runner | carries out operations | `b.h` | `Runner` |
"""
OF_THE_REVIEW = {
    *("Desk", "Runner", "Standpoint", "News", "kCaptured", "comes_to_rest", "make_up", "gives_way"),
    *("leave_out", "RecoveryCalls", "CommunicatorKeeper", "lending_memory", "capture_end"),
}


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKER), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tree(folder: Path, name: str, text: str) -> Path:
    (folder / "docs").mkdir()
    (folder / "docs" / "glossary.md").write_text(GLOSSARY)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_the_tree_uses_the_words_of_the_glossary() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stdout


def test_old_words_are_named_with_the_new_ones(tmp_path: Path) -> None:
    text = "the Keepers wait\nbookkeeper\nrun_keeper_1()\nstand_still()\n"
    result = check(tree(tmp_path, "proxy/a.cc", text))
    assert result.returncode == 1
    assert "proxy/a.cc:1: [keeper] is called [supervisor] (docs/glossary.md)" in result.stdout
    assert "proxy/a.cc:2" not in result.stdout
    assert "proxy/a.cc:3" in result.stdout
    assert "proxy/a.cc:4: [stand_still] is called [quiesce]" in result.stdout


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("class LogKeeper {", "keeper"),
        ("LogKeepers all;", "keeper"),
        ("struct KeeperOfNotes;", "keeper"),
        ("int keeperCount = 0;", "keeper"),
        ("log_Keeper2", "keeper"),
        ("void StandStillHere();", "stand_still"),
        ("standStill()", "stand_still"),
        ("a Runner runs", "Runner"),
    ],
)
def test_old_words_are_refused_inside_of_names(tmp_path: Path, line: str, word: str) -> None:
    result = check(tree(tmp_path, "proxy/a.cc", line + "\n"))
    assert result.stdout.splitlines()[0].startswith(f"proxy/a.cc:1: [{word}] is called [")


@pytest.mark.parametrize("line", ["Bookkeeper", "Keepership", "OperationRunner", "runner"])
def test_a_name_that_only_contains_the_letters_is_let_through(tmp_path: Path, line: str) -> None:
    assert check(tree(tmp_path, "proxy/a.cc", line + "\n")).returncode == 0


def test_the_words_of_the_review_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKER.parent))
    terms = importlib.import_module("terms")
    refused = {old.word for old in terms.old_words((ROOT / terms.GLOSSARY).read_text())}
    assert refused >= OF_THE_REVIEW


def test_capture_is_left_to_cuda(tmp_path: Path) -> None:
    text = "# of a stream capture\nrun(capture_output=True)\nmemory is captured\n"
    result = check(tree(tmp_path, "pyft/a.py", text))
    assert "pyft/a.py:3: a capture is CUDA's" in result.stdout
    assert "terms: 1 problems" in result.stdout


@pytest.mark.parametrize(
    "name", ["proxy/a.cc", "tests/a.h", "settings.toml", "proxy/api/wire/m.toml"]
)
def test_processes_are_no_persons(tmp_path: Path, name: str) -> None:
    text = "# the rank whose store it is\n# Nobody waits\n# who_is_it()\n# told to whom?\n"
    result = check(tree(tmp_path, name, text))
    assert f"{name}:2: [Nobody] is a person" in result.stdout
    assert f"{name}:4: [whom] is a person" in result.stdout
    assert "terms: 2 problems" in result.stdout


def test_python_of_the_product_may_name_what_it_asks_for(tmp_path: Path) -> None:
    text = "who = member.who\nblame = Blame.NOBODY\nsay('agrees with nobody')\n# Whoever ends\n"
    result = check(tree(tmp_path, "pyft/a.py", text))
    assert "pyft/a.py:3: [nobody] is a person" in result.stdout
    assert "pyft/a.py:4: [Whoever] is a person" in result.stdout
    assert "terms: 2 problems" in result.stdout


@pytest.mark.parametrize("name", ["docs/a.md", "tests/a.py", "pyft_lab/a.py"])
def test_pages_and_tests_may_speak_of_people(tmp_path: Path, name: str) -> None:
    assert check(tree(tmp_path, name, "who asks nobody\n")).returncode == 0


def test_cuda_s_own_code_may_capture(tmp_path: Path) -> None:
    assert check(tree(tmp_path, "softgpu/a.cc", "captured\n")).returncode == 0


def test_terms_of_concepts_have_a_row(tmp_path: Path) -> None:
    words = "A **supervisor**, **supervisors**, to **quiesce**.\n* A **bold\n  one**, a **row**.\n"
    text = f"**No term.**\n\n## Words\n\n{words}\n## Picture\n\n**none**\n"
    result = check(tree(tmp_path, "docs/concepts/a.md", text))
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "docs/concepts/a.md: [bold one] has no row in docs/glossary.md",
        "docs/concepts/a.md: [row] has no row in docs/glossary.md",
        "terms: 2 problems",
    ]
