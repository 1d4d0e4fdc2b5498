"""Which programs write a figure of docs/figures.md: its command leads to them, and they name it.

A command is `make TARGET` or a program of bench/, with variables before it and options behind it.
Programs are those that it names, the modules of bench/ that these import, and what these start.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
LEAST = 3  # letters that a name has, besides what the program puts in
_PROGRAM = re.compile(r"bench/(\w+\.py)")
_BUILT = re.compile(r"\$\(NATIVE\) ([\w ]+)")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


class NoProgram(ValueError):
    """A row has a command that leads nowhere, or to programs that do not write it."""


def of_command(command: str) -> set[Path]:
    """Return the programs of a command; raise NoProgram when there is none."""
    words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
    if words[:1] == ["make"]:
        recipe = _recipe(words[1] if len(words) > 1 else "")
        first = {BENCH / name for name in _PROGRAM.findall(recipe)}
        first |= {
            BENCH / f"{name}.cc" for names in _BUILT.findall(recipe) for name in names.split()
        }
    else:
        first = {ROOT / words[0]} if words and _PROGRAM.fullmatch(words[0]) else set()
    if not first or not all(path.is_file() for path in first):
        raise NoProgram(f"[{command}] is no program of bench/ and no target of make that runs one")
    found, todo = set[Path](), list(first)
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _leads_to(path)
    return found


def check(row: Mapping[str, Any], command: str) -> None:
    """Raise NoProgram unless the programs of a row's command have its name, column and reason."""
    command = row.get("command", command)
    patterns = [pattern for path in of_command(command) for pattern in names_in(path)]
    for text in (row["name"], row.get("column", ""), row.get("missed_on_purpose", "")):
        if text and not any(pattern.fullmatch(text) for pattern in patterns):
            raise NoProgram(f"no program of [{command}] writes a figure [{text}]")


def names_in(path: Path) -> Iterator[re.Pattern[str]]:
    """Yield what texts of a program can become, as far as they say anything."""
    texts = _of_python(path) if path.suffix == ".py" else _of_cpp(path)
    for parts in texts:
        if sum(letter.isalpha() for part in parts for letter in part) >= LEAST:
            yield re.compile(".+".join(map(re.escape, parts)))


def _of_python(path: Path) -> Iterator[list[str]]:
    """Yield the strings of a program, each in pieces between which it puts something."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield [node.value]
        elif isinstance(node, ast.JoinedStr):
            parts = [""]
            for value in node.values:
                if isinstance(value, ast.Constant):
                    parts[-1] += str(value.value)
                else:
                    parts.append("")
            yield parts


def _of_cpp(path: Path) -> Iterator[list[str]]:
    for found in _LITERAL.findall(path.read_text()):
        yield [found]


def _leads_to(path: Path) -> list[Path]:
    """Return the modules that a program imports, and the programs that it names."""
    if path.suffix != ".py":
        return []
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {f"{one.name}.py" for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(f"{node.module}.py")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= (
                {node.value, f"{node.value}.cc"} if re.fullmatch(r"[\w.]+", node.value) else set()
            )
    return [BENCH / name for name in names if (BENCH / name).is_file()]


def _recipe(target: str) -> str:
    """Return the lines of a target of the Makefile; none if it has no such."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
    return found[1] if found else ""
