"""What MkDocs asks while it makes the site: pages outside docs/, and links between all of them.

README.md files of folders, ARCHITECTURE.md and CONTRIBUTING.md become pages below `tree/`. A link
to a page leads there; a link to another file of the repository becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
TREE = "tree/"
DOCS = "docs/"
PARTS = [
    "bench",
    "examples",
    "flexccl",
    "profiling",
    "proxy",
    "pyft",
    "shim",
    "softgpu",
    "tests",
    "tools",
]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def pages_outside() -> list[str]:
    """Return the Markdown files that are not in docs/."""
    found = [*ROOT.glob("*.md"), *(page for part in PARTS for page in (ROOT / part).rglob("*.md"))]
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


def site_path(name: str, outside: list[str]) -> str:
    """Return where the site has a file of the repository; empty if it has not."""
    if name.startswith(DOCS) and (ROOT / name).is_file():
        return name.removeprefix(DOCS)
    return TREE + name if name in outside else ""


def rewrite(text: str, page: str, outside: list[str]) -> str:
    """Return the text of a page of the site with links that hold there."""
    own = page.removeprefix(TREE) if page.startswith(TREE) else DOCS + page

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        name = posixpath.normpath(str(PurePosixPath(own).parent / target))
        there = site_path(name, outside)
        if not there:
            return words
        near = posixpath.relpath(there, str(PurePosixPath(page).parent))
        return f"{image}[{words}]({near}{anchor})"

    parts = FENCED.split(text)
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for name in pages_outside():
        files.append(File.generated(config, TREE + name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links of a page lead to where the site has what they name."""
    return rewrite(markdown, page.file.src_uri, pages_outside())
