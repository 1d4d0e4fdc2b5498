"""The Dockerfile as a list of instructions."""

from __future__ import annotations

import fnmatch
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dockerfile_parse import DockerfileParser


@dataclass(frozen=True)
class Instruction:
    """One of them."""

    name: str
    value: str


@dataclass(frozen=True)
class Copy:
    """What a COPY copies; `stage`: from there, otherwise from this folder."""

    source: str
    to: str
    stage: str = ""


def instructions(path: Path) -> list[Instruction]:
    """Return all but comments."""
    with path.open("rb") as file:
        found = DockerfileParser(fileobj=file).structure
    return [
        Instruction(one["instruction"], one["value"])
        for one in found
        if one["instruction"] != "COMMENT"
    ]


def copied(text: str) -> Copy:
    """Take a COPY apart."""
    *flags, source, to = text.split()
    stages = [flag.partition("=")[2] for flag in flags if flag.startswith("--from=")]
    return Copy(source, to, *stages)


def words_of(text: str) -> list[str]:
    """Return the words of an ENTRYPOINT or CMD, which is JSON here."""
    found: list[str] = json.loads(text)
    return found


def ignored(root: Path) -> list[str]:
    """Return the patterns of .dockerignore."""
    lines = (root / ".dockerignore").read_text().splitlines()
    return [line.strip() for line in lines if line.strip()]


def is_ignored(file: str, patterns: list[str]) -> bool:
    """Say whether a file is left out, or a folder of it."""
    parts = file.split("/")
    places = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    for pattern in patterns:
        anywhere = pattern.removeprefix("**/")
        names = parts if anywhere != pattern else places
        if any(fnmatch.fnmatchcase(name, anywhere) for name in names):
            return True
    return False


def source_files(root: Path) -> list[str]:
    """Return what `COPY . .` copies of a clean tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    patterns = ignored(root)
    files = [file for file in listed.stdout.splitlines() if (root / file).is_file()]
    return [file for file in files if not is_ignored(file, patterns)]
