"""Takes Markdown apart for links.py: headings, prose, sentences, words. Simple, and says so.

A sentence ends with `.`, `?` or `!` before a space, at the end of its paragraph, list item or table
cell. Code in backquotes is one word, a link is its text, and a dash or a sign alone is no word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_WORDS = 25
FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +")
END = re.compile(r"(?<=[.?!])[\"')*_]*\s+(?=[\[\"'(*_`A-Z0-9])")
# A point behind these ends nothing.
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")


def without_fences(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines that are in no fenced block."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text: str) -> set[str]:
    """Return the anchors of all headings, as GitHub makes them."""
    found: dict[str, int] = {}
    result = set()
    for _, line in without_fences(text):
        heading = HEADING.match(line)
        if not heading:
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = found.get(slug, 0)
        found[slug] = again + 1
        result.add(f"{slug}-{again}" if again else slug)
    return result


def paragraphs(text: str, tables: bool) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, list item and, if wanted, table cell, with the line it begins at."""
    begin, words = 0, []
    for number, line in [*without_fences(text), (0, "")]:
        row = line.lstrip().startswith("|")
        apart = not line.strip() or row or HEADING.match(line) or ITEM.match(line)
        # A fenced block parts paragraphs, too: lines are missing then.
        if words and (apart or number != begin + len(words)):
            yield begin, " ".join(words)
            words = []
        if row and tables:
            yield from ((number, cell) for cell in line.strip().strip("|").split("|"))
        if not line.strip() or row or HEADING.match(line):
            continue
        if not words:
            begin = number
        words.append(ITEM.sub("", line).strip())


def sentences(text: str, tables: bool = False) -> Iterator[tuple[int, str]]:
    """Yield each sentence with the line at which its paragraph begins."""
    for number, paragraph in paragraphs(text, tables):
        plain = ABBREVIATION.sub(lambda found: found[1].replace(".", ""), paragraph)
        yield from ((number, sentence) for sentence in END.split(plain) if sentence.strip())


def count_words(sentence: str) -> int:
    """Return how many words a sentence has."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    return sum(1 for word in plain.split() if re.search(r"\w", word))
