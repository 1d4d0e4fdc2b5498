"""Read the files of proxy/api: records with their defaults and families, and the prototypes.

What a record does not say comes from the `[defaults]` of its file. A record whose name has letters in
braces stands for one function per letter, as in `cublas{SDCZ}axpy_v2`: `ids` has their numbers in that
order, and in `args` `{t}` is the letter's type, `{r}` the real type of the same width.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAMILY = re.compile(r"\{([A-Z]+)\}")
# Letter -> its type, and the real type of the same width.
LETTERS = {"S": ("f32", "f32"), "D": ("f64", "f64"), "C": ("c32", "f32"), "Z": ("c64", "f64")}
DEFAULTS = ("route", "replay", "support", "note")
# Tables that are no records.
LISTS = ("symbols", "vendor_libraries")


def prototypes(folder: Path) -> dict[str, tuple[str, str]]:
    """Return name -> (library, prototype) of `folder`/<library>.txt."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text().splitlines():
            name = re.search(r"(\w+)\(", line)
            if line.startswith("#") or not line.strip():
                continue
            if not name or name[1] in found:
                why = "is there twice" if name else "is no prototype"
                raise ValueError(f"{path.name}: [{line}] {why}")
            found[name[1]] = (path.stem, line)
    return found


def tables(path: Path) -> dict[str, dict]:
    """Return the tables of a file; raise ValueError when it is no TOML."""
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(str(error)) from None


def with_defaults(data: dict, defaults: dict) -> dict:
    """Return a record's table with what its file says for all."""
    if unknown := set(defaults) - set(DEFAULTS):
        raise ValueError(f"[defaults] has the unknown key [{sorted(unknown)[0]}]")
    full = {**defaults, **data}
    if full.get("route") == "unsupported":
        full.setdefault("support", "unsupported")
    full.setdefault("support", "full")
    if full["support"] == "full" and "note" not in data:
        full.pop("note", None)
    return full


def members(name: str, data: dict) -> Iterator[tuple[str, dict]]:
    """Yield the functions that a record stands for, each with a table of its own."""
    family = FAMILY.search(name)
    if not family:
        yield name, data
        return
    letters = family[1]
    ids = data.get("ids", [None] * len(letters))
    if len(ids) != len(letters) or "id" in data or not set(letters) <= set(LETTERS):
        raise ValueError("a family has [ids], one for each of its letters S, D, C, Z")
    for letter, number in zip(letters, ids, strict=True):
        own = {key: value for key, value in data.items() if key not in ("ids", "args")}
        t, r = LETTERS[letter]
        kinds = data.get("args", {}).items()
        own["args"] = {arg: kind.replace("{t}", t).replace("{r}", r) for arg, kind in kinds}
        yield FAMILY.sub(letter, name), own if number is None else {**own, "id": number}


def records(all_tables: dict[str, dict]) -> Iterator[tuple[str, dict]]:
    """Yield name and table of each record of a file, families written out."""
    defaults = all_tables.get("defaults", {})
    for name, data in all_tables.items():
        if name == "defaults" or name in LISTS:
            continue
        try:
            yield from members(name, with_defaults(data, defaults))
        except ValueError as error:
            raise ValueError(f"[{name}]: {error}") from None
