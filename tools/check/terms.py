"""Refuse words that the glossary has replaced (`terms.py [root]`); docs/glossary.md decides.

The last column of its tables names, in backquotes, what a term was called before. A word stands for
itself and for what an ending makes of it (`keeper`, `keepers`, `_keeper`), also inside of a name such
as `LogKeeper`. One with capitals is a name: it stands for itself alone. *Capture* is CUDA's: it is
refused in the folders that have nothing to do with stream capture.

A word in bold in a section "Words" of docs/concepts is a term: the glossary has a row for it.

Processes, ranks and threads are no persons: C++, the tables that generators copy, and the product's
Python speak of none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GLOSSARY = "docs/glossary.md"
CONCEPTS = "docs/concepts"
WORDS = re.compile(r"^## Words\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
# Made by generators, data, or where the old words must stand.
LEFT_OUT = re.compile(
    r"^(docs/(glossary|api-coverage|house)\.md|tools/check/(terms\.py|house_before\.json|walks\.toml)"
    r"|tests/unit/test_terms\.py)$|\.(bin|png|tsv)$"
)
# Folders in which "capture" can only be the old word for a snapshot.
NO_STREAM_CAPTURE = ("pyft/", "tests/unit/", "tests/sweep/", "bench/")
CAPTURE = re.compile(r"captur(e|es|ed|ing)\b", re.IGNORECASE)
# Of Python, pytest and CUDA; and the old spelling of a value, which is still taken.
ITS_OWN = re.compile(
    r"capture_output|suspend_global_capture|CaptureFixture|[Ss]tream capture|StreamCapture|STREAM_CAPTURED|capturable|\"capture\"|SHARE_CAPTURES|dmr_captured"
)

# C++, and tables whose sentences come into generated pages.
OF_PROCESSES = re.compile(r"\.(cc|c|h|cu)$|^(settings|faults)\.toml$|^proxy/api/.*\.toml$")
OF_A_PERSON = re.compile(
    r"(?<![A-Za-z_])(who|whom|whoever|somebody|nobody|everybody|anybody)(?![A-Za-z_])",
    re.IGNORECASE,
)
# Python of the product has names such as `who`, and the value `NOBODY`.
OF_THE_PRODUCT = re.compile(r"^pyft/.*\.py$")
NAMES_A_PERSON = re.compile(
    r"\b(?!(?-i:NOBODY))(whom|whoever|somebody|nobody|everybody|anybody|him)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Old:
    """A word that is not used any more."""

    word: str
    term: str

    def longest_part(self) -> str:
        """Return letters that are wherever the pattern matches, in lower case."""
        return max(re.split("[ _]", self.word), key=len).lower()

    def pattern(self) -> re.Pattern[str]:
        words = re.escape(self.word).replace(r"\ ", r"[\s-]+")
        if not self.word.islower():
            return re.compile(rf"(?<![A-Za-z]){words}(s|_)?(?![A-Za-z])")
        first, *others = re.split("[ _]", self.word)
        rest = "".join(map(str.capitalize, others))
        inside = rf"({first.capitalize()}|(?<![A-Za-z]){first}){rest}s?(?![a-z])"
        return re.compile(rf"(?i:(?<![A-Za-z]){words}(s|_)?(?![A-Za-z]))|{inside}")


def old_words(glossary: str) -> list[Old]:
    """Return the words of the glossary's last columns, with the terms that replace them."""
    found = []
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 4:
            continue
        found += [Old(word, cells[0]) for word in re.findall(r"`([^`]+)`", cells[-1])]
    return found


def terms(glossary: str) -> set[str]:
    """Return the words of the glossary's first columns; a cell may have several, and a remark."""
    cells = (line.split("|")[1] for line in glossary.splitlines() if line.startswith("|"))
    plain = (re.sub(r"\(.*?\)", "", cell) for cell in cells)
    return {word.strip().lower() for cell in plain for word in cell.split(",")}


def without_row(root: Path, known: set[str]) -> Iterator[str]:
    """Yield the terms of docs/concepts that the glossary lacks; a plural is its singular."""
    for page in sorted((root / CONCEPTS).glob("*.md")):
        for section in WORDS.findall(page.read_text()):
            for bold in BOLD.findall(section):
                word = " ".join(bold.split()).lower()
                if not {word, word.removesuffix("s")} & known:
                    yield f"{CONCEPTS}/{page.name}: [{word}] has no row in {GLOSSARY}"


def files(root: Path) -> list[str]:
    """Return what git knows of, or every file of a tree that is none of git's."""
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    known = done.stdout.split("\n")[:-1] if done.returncode == 0 else []
    return known or sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def _persons(name: str) -> re.Pattern[str] | None:
    """Return the words for persons that a file must not have."""
    if OF_PROCESSES.search(name):
        return OF_A_PERSON
    return NAMES_A_PERSON if OF_THE_PRODUCT.search(name) else None


def check(root: Path) -> Iterator[str]:
    """Yield a sentence per term without a row, and per line that has a refused word."""
    glossary = (root / GLOSSARY).read_text()
    yield from without_row(root, terms(glossary))
    refused = [(old, old.pattern()) for old in old_words(glossary)]
    for name in files(root):
        if LEFT_OUT.search(name) or not (root / name).is_file():
            continue
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        lowered = text.lower()
        possible = [(old, pattern) for old, pattern in refused if old.longest_part() in lowered]
        for number, line in enumerate(text.splitlines(), 1):
            for old, pattern in possible:
                if pattern.search(line):
                    yield f"{name}:{number}: [{old.word}] is called [{old.term}] ({GLOSSARY})"
            if name.startswith(NO_STREAM_CAPTURE) and CAPTURE.search(ITS_OWN.sub("", line)):
                yield f"{name}:{number}: a capture is CUDA's; of memory it is a [snapshot]"
            persons = _persons(name)
            if persons and (person := persons.search(line)):
                yield f"{name}:{number}: [{person[0]}] is a person; a process is an it"


def main() -> int:
    problems = list(check(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join([*problems, f"terms: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
