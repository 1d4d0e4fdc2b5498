"""Reads an instruction table: statements, enums, sets, and the checks across forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from isa_form import Enum, Field, Form, FormBuilder, TableError


@dataclass
class Statement:
    line: int
    text: str


def statements(source: str) -> list[Statement]:
    """Joins continuation lines (which start with a blank) and drops comments."""
    found: list[Statement] = []
    for number, raw in enumerate(source.splitlines(), 1):
        line = raw.split("#")[0].rstrip()
        if not line:
            continue
        if line[0].isspace():
            if not found:
                raise TableError(f"line [{number}]: a continuation without a statement")
            found[-1].text += " " + line.strip()
        else:
            found.append(Statement(number, line))
    return found


class Table:
    def __init__(self, source: str) -> None:
        self.enums: dict[str, Enum] = {}
        self.sets: dict[str, list[str]] = {}
        self.all_items: list[str] = []
        self.special: dict[str, int] = {}
        self.forms: list[Form] = []
        for statement in statements(source):
            try:
                self.add(statement)
            except ValueError as error:
                raise TableError(f"line [{statement.line}]: {error}") from error
        self.check_names()
        self.check_patterns()

    def add(self, statement: Statement) -> None:
        keyword, _, rest = statement.text.partition(" ")
        if keyword == "enum":
            name, *values = rest.split()
            self.enums[name] = Enum(name, values)
        elif keyword == "set":
            name, *items = rest.split()
            self.sets[name] = items
        elif keyword == "special":
            for item in rest.split():
                name, _, number = item.partition("=")
                if not number.isdigit():
                    raise ValueError(f"special register [{item}] has no number")
                self.special[name] = int(number)
        elif keyword == "all":
            self.all_items += rest.split()
        elif re.fullmatch(r"[A-Z][A-Z0-9.]*", keyword):
            self.add_instruction(statement, keyword, rest)
        else:
            raise ValueError(f"[{keyword}] begins no statement")

    def add_instruction(self, statement: Statement, mnemonic: str, rest: str) -> None:
        match = re.fullmatch(r'([^:]*?)\s*:\s+([^"]*?)\s*"([^"]*)"', rest.strip())
        if not match:
            raise ValueError(f"[{mnemonic}] is not of the form 'form=opcode : items \"text\"'")
        items = self.expand(match[2].split()) + self.all_items
        for form_text in match[1].split():
            name, _, opcode = form_text.partition("=")
            if not re.fullmatch(r"[0-9a-f]{3}", opcode):
                raise ValueError(f"[{form_text}] has no opcode of three hexadecimal digits")
            form = Form(statement.line, mnemonic, name.partition("@")[0], int(opcode, 16), match[3])
            FormBuilder(form, self.enums).build(name, items)
            self.forms.append(form)

    def expand(self, items: list[str]) -> list[str]:
        found: list[str] = []
        for item in items:
            if not item.startswith("%"):
                found.append(item)
            elif item[1:] in self.sets:
                found += self.expand(self.sets[item[1:]])
            else:
                raise ValueError(f"set [{item}] is not known")
        return found

    def check_names(self) -> None:
        """Form names are unique; a field lies at the same bits in all forms of a mnemonic."""
        names: dict[str, Form] = {}
        places: dict[tuple[str, str], Field] = {}
        for form in self.forms:
            if form.full_name in names:
                raise form.fail(f"the name is taken by line [{names[form.full_name].line}]")
            names[form.full_name] = form
            for item in form.fields:
                seen = places.setdefault((form.op, item.name), item)
                if (seen.first, seen.width) != (item.first, item.width):
                    raise form.fail(
                        f"field [{item.name}] lies at [{item.first}] with width [{item.width}], in "
                        f"another form at [{seen.first}] with width [{seen.width}]: "
                        "give it two names"
                    )

    def check_patterns(self) -> None:
        """No word matches two forms."""
        by_opcode: dict[int, list[Form]] = {}
        for form in self.forms:
            for other in by_opcode.setdefault(form.opcode, []):
                if not disjoint(form, other):
                    raise form.fail(
                        f"a word of opcode [{form.opcode:03x}] can match "
                        f"[{other.mnemonic} {other.name}] of line [{other.line}] too"
                    )
            by_opcode[form.opcode].append(form)


def disjoint(one: Form, other: Form) -> bool:
    """The forms fix one bit to different values, or one fixes a field to what is not legal in the
    other."""
    if any(other.fixed.get(bit, value) != value for bit, value in one.fixed.items()):
        return True
    return excludes(one, other) or excludes(other, one)


def excludes(one: Form, other: Form) -> bool:
    for item in one.fields:
        bits = range(item.first, item.first + item.width)
        if item.enum and all(bit in other.fixed for bit in bits):
            value = sum(other.fixed[bit] << i for i, bit in enumerate(bits))
            if not item.enum.legal() >> value & 1:
                return True
    return False
