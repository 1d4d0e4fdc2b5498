"""The check of documents finds what it is there to find, and the tree has none of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check" / "links.py"
SPEC = {
    "docs/spec/traps.md": "# Traps\n\n## A3 Pinned\n\n## A16 Owners\n",
    "docs/spec/real-gpu.md": "# Rules\n\n| rule |\n|---|\n| C5 streams do not block |\n",
}
SECTIONS = "".join(
    f"## {name}\n\n"
    for name in (
        "Words",
        "Picture\n\n```text\na --> b\n```",
        "States",
        "Invariants",
        "If a process is killed",
        "Tests",
    )
)


def check(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in (SPEC | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    command = [sys.executable, str(CHECKER), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *problems, total = done.stdout.splitlines()
    assert total == f"links: {len(problems)} problems"
    assert done.returncode == bool(problems)
    return problems


def test_the_tree_has_no_problem() -> None:
    command = [sys.executable, str(CHECKER), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", ["docs/ops.md", "docs/concepts/a.md", "softgpu/README.md"])
def test_sentences_in_tables_are_short(tmp_path: Path, page: str) -> None:
    files = {page: f"{SECTIONS}| a |\n|---|\n| {'word ' * 25}|\n| {'word ' * 26}|\n"}
    (problem,) = check(tmp_path, files)
    assert "[26] words in a sentence [word" in problem


def test_links_lead_to_files_and_headings(tmp_path: Path) -> None:
    good = "[a](b.md) [b](b.md#two-words) [c](#here) [d](https://x.org/y.md#z) [e](..)\n\n# Here\n"
    bad = "\n[a](c.md)\n[b](b.md#three)\n```\n[c](c.md)\n```\n`[d](c.md)`\n\n[e\nf](e.md)\n"
    files = {"docs/a.md": good, "docs/b.md": "# Two `words`\n", "docs/bad.md": bad}
    assert check(tmp_path, files) == [
        "docs/bad.md:2: the link leads to [docs/c.md], which does not exist",
        "docs/bad.md:3: [docs/b.md] has no heading [#three]",
        "docs/bad.md:10: the link leads to [docs/e.md], which does not exist",
    ]


def test_the_second_of_two_headings_has_a_number(tmp_path: Path) -> None:
    text = "[a](#one) [b](#one-1) [c](#one-2)\n\n# One\n\n# One\n"
    assert check(tmp_path, {"a.md": text}) == ["a.md:1: [a.md] has no heading [#one-2]"]


def test_file_names_in_backquotes_exist(tmp_path: Path) -> None:
    text = (
        "`pyft/a.py` `pyft/` `pyft/*.py` `pyft/a.py --all` `other/b.py`\n`pyft/b.py` `pyft/*.cc`\n"
    )
    assert check(tmp_path, {"a.md": text, "pyft/a.py": ""}) == [
        "a.md:2: [pyft/b.py] does not exist",
        "a.md:2: [pyft/*.cc] does not exist",
    ]


def test_members_in_backquotes_are_of_their_class(tmp_path: Path) -> None:
    files = {
        "proxy/a.h": "class Loop { void run(); };\nclass Inner;\n",
        "proxy/b.h": "class Wait { int poll(); };\n",
        "proxy/b.cc": "class Own {};\nvoid Own::probe() { Wait().poll(); }\n",
        "a.md": "`Loop::run` `Wait::poll()` `Own::probe` `std::span` `b.cc: Loop::poll`\n"
        "`Loop::poll` `Gone::run` `Own::poll`\n```\n`Loop::poll`\n```\n",
    }
    assert check(tmp_path, files) == [
        "a.md:2: [Loop] of C++ has no [poll]",
        "a.md:2: [Gone] of C++ has no [run]",
        "a.md:2: [Own] of C++ has no [poll]",
    ]


def test_documents_that_code_names_exist(tmp_path: Path) -> None:
    text = "# docs/spec/traps.md\n# docs/gone.md\n"
    assert check(tmp_path, {"a.py": text}) == ["a.py:2: [docs/gone.md] does not exist"]


def test_numbers_that_code_cites_are_defined(tmp_path: Path) -> None:
    text = 'x = field("A64")  # (A16), (C5)\n# (A3\n# and A17); docs/spec/traps.md, A3 and C5\n'
    assert check(tmp_path, {"a.py": text}) == [
        "a.py: [docs/spec/traps.md] does not define [C5]",
        "a.py: nothing in docs/spec/ defines [A17]",
    ]


def test_numbers_in_concepts_are_defined(tmp_path: Path) -> None:
    text = f"A16 and A18, `A19`.\n\n{SECTIONS}"
    assert check(tmp_path, {"docs/concepts/a.md": text}) == [
        "docs/concepts/a.md:1: nothing in docs/spec/ defines [A18]"
    ]


def test_sections_of_concepts_are_there(tmp_path: Path) -> None:
    pages = {"docs/concepts/a.md": SECTIONS.replace("## Tests", "## Test"), "docs/a.md": ""}
    assert check(tmp_path, pages) == ["docs/concepts/a.md: has no section [Tests]"]


def test_a_picture_is_a_fenced_block(tmp_path: Path) -> None:
    more = "## Picture: repaired\n\nLater.\n\n## Pictures of others\n\nNone.\n"
    assert check(tmp_path, {"docs/concepts/a.md": SECTIONS + more}) == [
        "docs/concepts/a.md: [## Picture: repaired] has no picture, which is a fenced block"
    ]


SENTENCE = "word " * 25 + "end."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * 101, "[101] columns, the most are [100]"),
        (SENTENCE, "[26] words in a sentence [word word word word word word …]"),
        (f"# Title\n\n* {SENTENCE}", "[26] words in a sentence [word word word word word word …]"),
        ("a\n" * 151, "lines, the most are [150]"),
        (f"| {SENTENCE} |", "[26] words in a sentence [word word word word word word …]"),
    ],
)
def test_what_is_too_long_is_named(tmp_path: Path, text: str, problem: str) -> None:
    page = {"docs/concepts/a.md": f"{text}\n\n{SECTIONS}"}
    assert any(problem in line for line in check(tmp_path, page))
    assert check(tmp_path, {"docs/concepts/a.md": SECTIONS, "docs/a.md": text}) == []


TWENTY = ("word " * 10 + "\n") * 2


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "x" * 101 + "\n```",
        "| " + "x" * 101 + " |",
        f"[{'x' * 90}](a.md#{'x' * 20})\n\n# {'x' * 20}",
        TWENTY + "end. " + TWENTY.capitalize(),
        TWENTY + "`much code in one` " * 2 + "[a b](a.md) - end.",
        TWENTY + "* " + TWENTY,
    ],
)
def test_what_is_short_enough_passes(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, {"docs/concepts/a.md": f"{text}\n\n{SECTIONS}"}) == []
