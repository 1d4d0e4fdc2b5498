"""Small changes of a C++ source, one at a time, for source_mutants.py. By its tokens, not its syntax."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# What no mutant is in: comments, texts, characters, and lines of the preprocessor.
_OUTSIDE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*',
    re.DOTALL | re.MULTILINE,
)
_TEXTS = ('"', "'", "//", "/*")
OPERATORS = {
    "==": "!=",
    "!=": "==",
    "<=": "<",
    ">=": ">",
    "&&": "||",
    "||": "&&",
    " < ": " <= ",
    " > ": " >= ",
    " + ": " - ",
    " - ": " + ",
    "++": "--",
    "+=": "-=",
}
_OPERATOR = re.compile("|".join(re.escape(text) for text in sorted(OPERATORS, key=len)[::-1]))
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.'])")
# Numbers that are no other behaviour when they are larger: how long something waits, which no test
# measures, and how many items an array has room for.
_ROOM = re.compile(
    r"^[^\n]*\bconstexpr (?:std::chrono::|[^\n]*Ms = )[^\n]*$|^[ \t]+[\w:<>]+ \w+\[\d+\];$",
    re.MULTILINE,
)
_TRUTH = re.compile(r"\b(?:true|false)\b")
# A statement of one line that calls or assigns something, or leaves: it is left out.
_STATEMENT = re.compile(
    r"^(?P<in>[ \t]+)(?:if \([^\n]*\) )?(?P<what>(?:[a-z_][\w.\->:\[\]*]*(?:\([^\n;{}]*\)|"
    r" [-+|]?= [^\n;{}]+|\+\+)|\+\+[\w.\->]+|throw [^\n;{}]+|return(?: [^\n;{}]+)?|continue|break));$",
    re.MULTILINE,
)
# What leaves no statement behind, and fences: what a processor may reorder is up to the processor.
_DECLARES = re.compile(
    r"^(?:const |auto |static |using |return [^;]*\{|std::atomic_thread_fence\()"
)
_CONDITION = re.compile(r"\bif \((?!!\()(?=[^\n]*\))")
LONGEST = 90


@dataclass(frozen=True)
class Mutant:
    """One changed source."""

    line: int
    text: str  # what becomes what, without the line: it stays the same while others are changed
    source: str


def mutants(path: Path) -> list[Mutant]:
    """Return all of a file, by place."""
    source = path.read_text()
    hidden = _OUTSIDE.sub(_blank, source)
    found, seen = [], defaultdict[str, int](int)
    for begin, end, new in sorted(set(_changes(hidden))):
        line = source.count("\n", 0, begin) + 1
        text = (
            f"{_line_of(source, begin)} [{source[begin:end].strip()} -> {new.strip() or 'nothing'}]"
        )
        seen[text] += 1
        text += f" ({seen[text]})" if seen[text] > 1 else ""
        found.append(Mutant(line, text, source[:begin] + new + source[end:]))
    return found


def sample(all_of_them: Sequence[Mutant], most: int, seed: int) -> list[Mutant]:
    """Return so many, drawn by a seed, in their order."""
    if most >= len(all_of_them):
        return list(all_of_them)
    chosen = random.Random(seed).sample(range(len(all_of_them)), most)
    return [all_of_them[number] for number in sorted(chosen)]


def _blank(found: re.Match[str]) -> str:
    """Return as many characters in which nothing is found; lines stay."""
    return re.sub(r"[^\n]", "\0", found[0])


def _line_of(source: str, at: int) -> str:
    begin = source.rfind("\n", 0, at) + 1
    line = source[begin : source.index("\n", at)].strip()
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _changes(hidden: str) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and what stands there instead."""
    for found in _OPERATOR.finditer(hidden):
        if not _is_template(hidden, found):
            yield found.start(), found.end(), OPERATORS[found[0]]
    for found in _NUMBER.finditer(_ROOM.sub(_blank, hidden)):
        yield found.start(), found.end(), str(int(found[0]) + 1)
    for found in _TRUTH.finditer(hidden):
        yield found.start(), found.end(), "false" if found[0] == "true" else "true"
    for found in _CONDITION.finditer(hidden):
        if (end := _closed(hidden, found.end() - 1)) and ";" not in hidden[found.end() : end]:
            whole = hidden[found.end() : end]
            if "\0" not in whole:
                yield found.start(), end + 1, f"if (!({whole}))"
    for found in _STATEMENT.finditer(hidden):
        what = found["what"]
        if _DECLARES.match(what) or (what.startswith("return ") and "if (" not in found[0]):
            continue  # a function without its result does not compile
        yield found.start("what"), found.end("what"), ""


def _is_template(hidden: str, found: re.Match[str]) -> bool:
    """Say whether && is that of a reference, which stands behind a type and before a name."""
    before, after = hidden[found.start() - 1], hidden[found.end() : found.end() + 1]
    return found[0] == "&&" and (before != " " or after != " ")


def _closed(text: str, at: int) -> int:
    """Return where the bracket that opens at a place is closed; 0 if it is not."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return 0
