"""Read proxy/api/wire/messages.toml into checked records."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORDS = 3
PLAIN = ("u64", "int", "bool", "low_u32", "low_i32", "high_u32")
DIRECTIONS = ("server to agent", "agent to server", "server to server")


class TableError(Exception):
    """A table has a mistake, which the text names."""


@dataclass(frozen=True)
class Value:
    """One name of an enum, or a constant."""

    name: str
    value: int
    doc: str


@dataclass(frozen=True)
class Enum:
    """Names for the values of a word."""

    name: str
    doc: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Field:
    """One field, and in which word it travels."""

    name: str
    type: str
    doc: str
    word: int


@dataclass(frozen=True)
class Message:
    """One kind of message."""

    name: str
    number: int
    direction: str
    doc: str
    fields: tuple[Field, ...]
    payload: str
    descriptor: str

    def of_word(self, word: int) -> list[Field]:
        """Return the fields that share a word."""
        return [field for field in self.fields if field.word == word]


@dataclass(frozen=True)
class Table:
    """All of it."""

    magic: int
    max_payload_bytes: int
    enums: tuple[Enum, ...]
    constants: tuple[Value, ...]
    messages: tuple[Message, ...]


def snake(name: str) -> str:
    """Return WantExport as want_export."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def load(path: Path) -> Table:
    """Read and check the table."""
    raw = tomllib.loads(path.read_text())
    enums = tuple(
        Enum(one["name"], one["doc"], tuple(Value(**value) for value in one["values"]))
        for one in raw.get("enum", [])
    )
    names = {one.name for one in enums}
    messages = tuple(_message(one, names) for one in raw["message"])
    for what in ("name", "number"):
        seen = [getattr(one, what) for one in messages]
        if twice := {one for one in seen if seen.count(one) > 1}:
            raise TableError(f"two messages have the {what} {sorted(twice)}")
    constants = tuple(Value(**one) for one in raw.get("constant", []))
    return Table(**raw["header"], enums=enums, constants=constants, messages=messages)


def _message(raw: dict[str, Any], enums: set[str]) -> Message:
    known = {"name", "number", "direction", "doc", "fields", "payload", "descriptor"}
    name = raw.get("name", "?")
    if surplus := raw.keys() - known:
        raise TableError(f"message [{name}] has unknown keys {sorted(surplus)}")
    if raw.get("direction") not in DIRECTIONS:
        raise TableError(f"message [{name}] has the direction [{raw.get('direction')}]")
    if not raw.get("doc"):
        raise TableError(f"message [{name}] has no doc")
    fields: list[Field] = []
    for one in raw.get("fields", []):
        if one["type"] not in (*PLAIN, *enums):
            raise TableError(f"field [{one['name']}] of [{name}] has the type [{one['type']}]")
        shares = one["type"] == "high_u32"
        if shares and not (fields and fields[-1].type.startswith("low_")):
            raise TableError(f"field [{one['name']}] of [{name}] follows no lower half")
        word = (fields[-1].word if fields else -1) + (not shares)
        fields.append(Field(one["name"], one["type"], one["doc"], word))
    if fields and fields[-1].word >= WORDS:
        raise TableError(f"message [{name}] has more than [{WORDS}] words")
    texts = (raw.get("payload", ""), raw.get("descriptor", ""))
    return Message(name, raw["number"], raw["direction"], raw["doc"], tuple(fields), *texts)
