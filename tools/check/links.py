"""Refuse what leads nowhere in the documents, and what cannot be read there (`links.py [root]`).

In every Markdown file: a relative link leads to a file, and to a heading of it; a name in backquotes
that begins with a folder of ours is a file or a folder; a `Class::member` in backquotes is defined
in C++, or a header has both names. In every other file: `docs/….md` exists.
A number that code cites, as in (A16) or `docs/spec/traps.md, A3 and A15`, is defined in docs/spec;
so is every such number in docs/concepts. A definition is a heading or the beginning of a table row.

In what READABLE names: lines of prose have at most 100 columns, sentences at most 25 words, in tables
as well. A page of docs/concepts has at most 150 lines and the sections of SECTIONS; a picture is a
fenced block. Processes are no persons: words for people are refused. README.md has fewer than
130 lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path, PurePosixPath

import prose

FOLDERS = [
    "bench",
    "docs",
    "examples",
    "flexccl",
    "profiling",
    "proxy",
    "pyft",
    "pyft_lab",
    "shim",
    "softgpu",
    "tests",
    "tools",
]
READABLE = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/README.md",
    "docs/api-coverage.md",
    "docs/concepts/",
    "docs/deadlines.md",
    "docs/env-vars.md",
    "docs/fault-points.md",
    "docs/figures.md",
    "docs/glossary.md",
    "docs/gpu-results.md",
    "docs/house.md",
    "docs/messages.md",
    "docs/operate/",
    "docs/ops.md",
    "docs/recipes/",
    "docs/research/",
    "docs/operate/security.md",
    "docs/spec/",
    "flexccl/README.md",
    "proxy/api/README.md",
    "shim/README.md",
    "softgpu/README.md",
)
# Words for people, which our processes are not. Of people is only:
OF_A_PERSON = re.compile(r"\b(who|whom|whoever|somebody|nobody|he|him|his)\b", re.IGNORECASE)
OF_PEOPLE = ("docs/operate/security.md",)
# A member of a class of C++, and where our classes lie.
MEMBER = re.compile(r"([A-Z]\w*)::(\w+)(?:\(\))?$")
CPP = re.compile(r"(proxy|softgpu|flexccl)/.*\.(h|cc)$")
README, README_LINES = "README.md", 130
CONCEPTS = "docs/concepts/"
SPEC = "docs/spec/"
MOST_COLUMNS, MOST_LINES = 100, 150
SECTIONS = ("Words", "Picture", "States", "Invariants", "If a process is killed", "Tests")
PICTURES = re.compile(r"^## Picture\b.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
OUR_NAME = re.compile(rf"({'|'.join(FOLDERS)})/[\w./*-]*$")
DOCUMENT = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md\b")
NUMBER = r"[ACHIM][1-9]\d?"
NUMBERS = rf"{NUMBER}(?:(?:,| and) {NUMBER})*"
BY_PAGE = re.compile(rf"(docs/spec/[\w-]+\.md)[,:]? ({NUMBERS})\b")
IN_BRACKETS = re.compile(rf"\(({NUMBERS})\)")
DEFINED = re.compile(rf"^(?:#+|\|) *({NUMBER})\b", re.MULTILINE)
# What joins the lines of a comment.
WRAP = re.compile(r"\n[ \t]*(?://|#|\*)?[ \t]*")
# Tests of this check show wrong names on purpose; made or written elsewhere.
LEFT_OUT = re.compile(
    r"^(tools/check/links\.py|tests/unit/test_(links|terms)\.py)$|\.(bin|png|tsv|isa|txt)$"
)


class Tree:
    """The files that git knows of, or every file of a tree that is none of git's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        done = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
        )
        names = done.stdout.split("\n")[:-1] if done.returncode == 0 else []
        if not names:
            names = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
        self.files = sorted(n for n in names if (root / n).is_file())
        folders = (str(parent) for name in self.files for parent in PurePosixPath(name).parents)
        self.names = set(self.files) | set(folders)
        self._headings: dict[str, set[str]] = {}

    def text(self, name: str) -> str:
        try:
            return (self.root / name).read_text()
        except UnicodeDecodeError:
            return ""

    def has(self, name: str) -> bool:
        name = name.rstrip("/")
        return name in self.names or ("*" in name and any(fnmatch(n, name) for n in self.files))

    def headings(self, page: str) -> set[str]:
        if page not in self._headings:
            self._headings[page] = prose.anchors(self.text(page))
        return self._headings[page]

    @cached_property
    def cpp(self) -> tuple[list[set[str]], set[tuple[str, str]]]:
        """The words of each header, and the members that other files define."""
        files = [name for name in self.files if CPP.match(name)]
        headers = [self.text(name) for name in files if name.endswith(".h")]
        sources = (self.text(name) for name in files if name.endswith(".cc"))
        defined = (found for text in sources for found in re.findall(r"\b(\w+)::(\w+)\(", text))
        return [set(re.findall(r"\w+", text)) for text in headers], set(defined)

    def has_member(self, owner: str, name: str) -> bool:
        headers, defined = self.cpp
        return (owner, name) in defined or any({owner, name} <= words for words in headers)

    @cached_property
    def numbers(self) -> dict[str, set[str]]:
        """What each page of docs/spec defines."""
        pages = (name for name in self.files if name.startswith(SPEC))
        return {page: set(DEFINED.findall(self.text(page))) for page in pages}

    @cached_property
    def all_numbers(self) -> set[str]:
        return set().union(*self.numbers.values())


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines between empty ones together, without code, each time with the first's number.

    The text of a link may begin on one line and end on the next.
    """
    first, lines = 0, list[str]()
    for number, line in [*prose.without_fences(text), (0, "")]:
        if lines and (not line.strip() or number != first + len(lines)):
            yield first, "\n".join(lines)
            lines = []
        if line.strip():
            first = first if lines else number
            lines.append(CODE.sub("", line))


def links(tree: Tree, page: str, text: str) -> Iterator[str]:
    """Yield what links of a page do not lead to."""
    for number, part in paragraphs(text):
        for found in LINK.finditer(part):
            line, target = number + part.count("\n", 0, found.start(1)), found[1]
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            where = page if not name else _beside(page, name)
            if not tree.has(where):
                yield f"{page}:{line}: the link leads to [{where}], which does not exist"
            elif anchor and anchor not in tree.headings(where):
                yield f"{page}:{line}: [{where}] has no heading [#{anchor}]"


def _beside(page: str, name: str) -> str:
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / name).parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


def file_names(tree: Tree, page: str, text: str) -> Iterator[str]:
    """Yield names of files in backquotes that are none."""
    for number, line in prose.without_fences(text):
        for code in CODE.findall(line):
            name = code.split(" ")[0].split(":")[0].split("#")[0]
            if OUR_NAME.match(name) and not tree.has(name):
                yield f"{page}:{number}: [{name}] does not exist"


def members(tree: Tree, page: str, text: str) -> Iterator[str]:
    """Yield names of members in backquotes that their class does not have."""
    for number, line in prose.without_fences(text):
        for found in filter(None, map(MEMBER.match, CODE.findall(line))):
            if not tree.has_member(*found.groups()):
                yield f"{page}:{number}: [{found[1]}] of C++ has no [{found[2]}]"


def documents(tree: Tree, name: str, text: str) -> Iterator[str]:
    """Yield documents that code names and that are none."""
    for found in DOCUMENT.finditer(text):
        if not tree.has(found[0]):
            yield f"{name}:{_line(text, found.start())}: [{found[0]}] does not exist"


def cited(tree: Tree, name: str, text: str) -> Iterator[str]:
    """Yield numbers that code cites and docs/spec does not define."""
    joined = WRAP.sub(" ", text)
    for found in BY_PAGE.finditer(joined):
        for number in re.findall(NUMBER, found[2]):
            if number not in tree.numbers.get(found[1], set()):
                yield f"{name}: [{found[1]}] does not define [{number}]"
    for found in IN_BRACKETS.finditer(joined):
        for number in re.findall(NUMBER, found[1]):
            if number not in tree.all_numbers:
                yield f"{name}: nothing in {SPEC} defines [{number}]"


def cited_by_page(tree: Tree, page: str, text: str) -> Iterator[str]:
    """Yield numbers in a page of docs/concepts that docs/spec does not define."""
    for number, line in prose.without_fences(text):
        for found in re.findall(rf"\b{NUMBER}\b", CODE.sub("", line)):
            if found not in tree.all_numbers:
                yield f"{page}:{number}: nothing in {SPEC} defines [{found}]"


def readable(page: str, text: str) -> Iterator[str]:
    """Yield what is too long in a page."""
    for number, line in prose.without_fences(text):
        columns = len(LINK.sub(lambda link: link[0].split("](")[0] + "]", line))
        if not line.startswith("|") and "://" not in line and columns > MOST_COLUMNS:
            yield f"{page}:{number}: [{columns}] columns, the most are [{MOST_COLUMNS}]"
        if page not in OF_PEOPLE and (word := OF_A_PERSON.search(CODE.sub("", line))):
            yield f"{page}:{number}: [{word[0]}] is for people: say which process or thing"
    for number, sentence in prose.sentences(text, tables=True):
        words = prose.count_words(sentence)
        if words > prose.MOST_WORDS:
            short = " ".join(sentence.split()[:6])
            yield f"{page}:{number}: [{words}] words in a sentence [{short} …]"


def whole(page: str, text: str) -> Iterator[str]:
    """Yield what a page of docs/concepts lacks, or has too much of."""
    if (lines := text.count("\n")) > MOST_LINES:
        yield f"{page}: [{lines}] lines, the most are [{MOST_LINES}]"
    for section in SECTIONS:
        if not re.search(rf"^## {section}\b", text, re.MULTILINE):
            yield f"{page}: has no section [{section}]"
    for picture in PICTURES.findall(text):
        if "```" not in picture:
            yield f"{page}: [{picture.splitlines()[0]}] has no picture, which is a fenced block"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def check(root: Path) -> Iterator[str]:
    """Yield a sentence per problem."""
    tree = Tree(root)
    for name in tree.files:
        if LEFT_OUT.search(name):
            continue
        text = tree.text(name)
        if name.endswith(".md"):
            yield from links(tree, name, text)
            yield from file_names(tree, name, text)
            yield from members(tree, name, text)
            if name.startswith(READABLE):
                yield from readable(name, text)
            if name == README and text.count("\n") >= README_LINES:
                yield f"{name}: has [{README_LINES}] lines or more"
            if name.startswith(CONCEPTS):
                yield from cited_by_page(tree, name, text)
                yield from whole(name, text)
        else:
            yield from documents(tree, name, text)
            yield from cited(tree, name, text)


def main() -> int:
    problems = list(check(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join([*problems, f"links: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
