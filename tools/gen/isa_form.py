"""One form of the instruction table: what explains each bit of its words, from the items.

The syntax of the items is described at the top of softgpu/isa/sm75.isa.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LAST_BIT = 104  # 105..127 are scheduling control, never looked at
IMM_KINDS = ("u32", "s32", "f32", "f64", "h2")
# Modifiers that are computed by the printer from several fields.
SPECIAL_MODIFIERS = ("imad", "f2i", "i2f", "red")
OPERAND_WORDS = (
    "rd",
    "a",
    "b",
    "c",
    "pd0",
    "pd1",
    "ps0",
    "ps1",
    "ps2",
    "addr",
    "target",
    "absolute",
    "rel",
    "breg",
    "lut0",
    "depbar",
    "PR",
)
PREDICATES = {"pd0": (81, 3), "pd1": (84, 3), "ps0": (87, 4), "ps1": (77, 4), "ps2": (68, 4)}


class TableError(Exception):
    """The table is wrong; the text says where and why."""


@dataclass
class Enum:
    name: str
    values: list[str]  # ".LT", "-RN" or "!"

    def legal(self) -> int:
        return sum(1 << i for i, v in enumerate(self.values) if v != "!")


@dataclass
class Field:
    name: str
    first: int
    width: int
    enum: Enum | None = None
    text: str = ""  # of a one-bit field: printed when set
    special: bool = False  # the number of a special register

    def legal(self) -> int:
        """Bit v is set: value v is legal. All bits: no limit. None: special registers only."""
        if self.special:
            return 0
        return self.enum.legal() if self.enum else 0xFFFF


@dataclass
class Operand:
    kind: str = "kNone"
    first: int = 0
    width: int = 0
    neg: int = 0  # bit numbers; 0: the operand has none
    abs: int = 0
    inverts: str = "kNegates"  # what the neg bit means
    select_first: int = 0
    select_width: int = 0
    select: Enum | None = None


@dataclass
class Form:
    line: int
    mnemonic: str
    name: str
    opcode: int
    text: str = ""
    owner: dict[int, str] = field(default_factory=dict)  # bit -> what explains it
    fixed: dict[int, int] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    operands: dict[str, Operand] = field(default_factory=dict)
    rd: str = "kNone"
    predicates: dict[str, str] = field(default_factory=dict)
    guard: str = "kPredicate"
    imm: str = "u32"

    @property
    def op(self) -> str:
        return self.mnemonic.replace(".", "_")

    @property
    def full_name(self) -> str:
        return f"{self.op}_{self.name}"

    def fail(self, what: str) -> TableError:
        return TableError(f"line [{self.line}], [{self.mnemonic} {self.name}]: {what}")

    def claim(self, first: int, width: int, what: str) -> None:
        if first < 16 or first + width - 1 > LAST_BIT:
            raise self.fail(f"[{what}] lies at bits [{first}..{first + width - 1}], not in 16..104")
        for bit in range(first, first + width):
            if bit in self.owner:
                raise self.fail(f"bit [{bit}] belongs to [{self.owner[bit]}] and to [{what}]")
            self.owner[bit] = what

    def fix(self, first: int, width: int, value: int) -> None:
        if value >> width:
            raise self.fail(f"value [{value}] does not fit into [{width}] bits at [{first}]")
        self.claim(first, width, f"={value}")
        self.set_fixed(first, width, value)

    def set_fixed(self, first: int, width: int, value: int) -> None:
        for i in range(width):
            self.fixed[first + i] = value >> i & 1

    def fill_zero(self, bits: range) -> None:
        """What nothing else explains in these bits must be zero."""
        for bit in bits:
            if bit not in self.owner:
                self.fix(bit, 1, 0)


def bit_range(text: str) -> tuple[int, int]:
    """ "70..75" -> (70, 6); "70" -> (70, 1)."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if not match:
        raise ValueError(f"[{text}] is no bit range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"bit range [{text}] ends before it begins")
    return first, last - first + 1


class FormBuilder:
    """Applies the items of a statement to one of its forms."""

    def __init__(self, form: Form, enums: dict[str, Enum]) -> None:
        self.form = form
        self.enums = enums
        self.signs: list[tuple[str, str, int]] = []  # prefix, operand, bit (0: the usual one)
        self.selects: list[tuple[str, str, str]] = []  # operand, bits, enum
        self.spare: list[int] = []  # upper bits of uniform registers: zero if nothing takes them

    def build(self, spelling: str, items: list[str]) -> None:
        form = self.form
        letters = re.fullmatch(r"([RUIC]{1,3})(_\w+)?(@64)?", spelling)
        if letters:
            self.place_letters(letters[1], bool(letters[3]))
        elif not re.fullmatch(r"[a-z]\w*", spelling):
            raise form.fail("a form is letters of RUIC or a word in small letters")
        for item in items:
            self.apply(item)
        for prefix, operand, bit in self.signs:
            self.place_sign(prefix, operand, bit)
        for operand, bits, enum in self.selects:
            self.place_select(operand, bits, enum)
        if letters:
            self.fill_letters(letters[1])
        for bit in self.spare:
            form.fill_zero(range(bit, bit + 1))
        missing = [bit for bit in range(16, LAST_BIT + 1) if bit not in form.owner]
        if missing:
            raise form.fail(f"bits {missing} are explained by nothing")
        self.check_text()

    # Sources named by the letters of a form.
    def place_letters(self, letters: str, second_at_64: bool) -> None:
        roles = {1: "b", 2: "ab", 3: "abc"}[len(letters)]
        kinds = dict(zip(roles, letters, strict=True))
        if "a" in kinds:
            self.register("a", 24, kinds["a"] == "U")
        b_first = 32
        if len(letters) == 3 and kinds["c"] not in "RU" or letters == "RRU" or second_at_64:
            b_first = 64
        self.source("b", kinds["b"], b_first)
        if "c" in kinds:
            self.source("c", kinds["c"], 96 - b_first)

    def source(self, role: str, letter: str, first: int) -> None:
        if letter in "RU":
            self.register(role, first, letter == "U")
        elif first != 32:
            raise self.form.fail(f"source [{letter}] cannot lie in slot [{first}]")
        elif letter == "I":
            self.immediate(role, 32, 32)
        else:
            self.form.fix(38, 2, 0)  # the offset counts whole words
            self.form.claim(40, 19, role)
            self.form.operands[role] = Operand("kConst", 38, 21)

    def fill_letters(self, letters: str) -> None:
        form = self.form
        firsts = [operand.first for operand in form.operands.values()]
        form.fill_zero(range(32, 64))
        if 64 in firsts:
            form.fill_zero(range(74, 76))
        if 24 in firsts:
            form.fill_zero(range(72, 74))
        if 91 not in form.owner:
            form.fix(91, 1, int("U" in letters))

    def register(self, role: str, first: int, uniform: bool) -> None:
        if role in self.form.operands:
            raise self.form.fail(f"operand [{role}] is given twice")
        if first not in (24, 32, 64):
            raise self.form.fail(f"operand [{role}] cannot be a register at bit [{first}]")
        width = 6 if uniform else 8
        self.form.claim(first, width, role)
        if uniform:
            self.spare += [first + 6, first + 7]
        self.form.operands[role] = Operand("kUReg" if uniform else "kReg", first, width)

    def immediate(self, role: str, first: int, width: int) -> None:
        self.form.claim(first, width, role)
        self.form.operands[role] = Operand("kImm", first, width)

    def apply(self, item: str) -> None:
        for pattern, method in (
            (r"(u?)rd", self.item_rd),
            (r"(u?)([abc])(?:@(\d+))?", self.item_register),
            (r"([abc])i@(\S+)", self.item_immediate),
            (r"([ru]?)const", self.item_const),
            (r"(-~|-|~|\|)([abc])(?:@(\d+))?", self.item_sign),
            (r"(u?)(pd[01]|ps[012])", self.item_predicate),
            (r"sel_([abc]):([^/]+)(?:/(.+))?", self.item_select),
            (r"([A-Z][A-Z0-9_]*):([^/=]+)(?:/(.+))?", self.item_field),
            (r"([A-Z][A-Z0-9_]*):([^/=]+)=(\d+)", self.item_fixed_field),
            (r"=(\d+)@(\S+)", self.item_fixed),
            (r"(zero|ignore)=(\S+)", self.item_ranges),
            (r"(guard|imm)=(\w+)", self.item_option),
        ):
            match = re.fullmatch(pattern, item)
            if match:
                method(*match.groups())
                return
        raise self.form.fail(f"item [{item}] is not known")

    def item_rd(self, uniform: str) -> None:
        self.form.claim(16, 6 if uniform else 8, "rd")
        if uniform:
            self.form.fix(22, 2, 0)
        self.form.rd = "kUniform" if uniform else "kVector"

    def item_register(self, uniform: str, role: str, first: str | None) -> None:
        if (role == "a") != (first is None):
            raise self.form.fail(f"operand [{role}] needs a place b@N or c@N, and A has none")
        self.register(role, int(first or 24), bool(uniform))

    def item_immediate(self, role: str, bits: str) -> None:
        self.immediate(role, *bit_range(bits))

    def item_const(self, index: str) -> None:
        """B is a constant; with an index register in 24..31 its offset is signed."""
        self.form.fix(32, 6, 0)
        self.form.claim(38, 21, "const")
        self.form.fix(59, 5, 0)
        operand = self.form.operands["b"] = Operand("kConst", 38, 21)
        if not index:
            return
        operand.select_first, operand.select_width = 24, 6 if index == "u" else 8
        self.form.claim(24, operand.select_width, "const")
        if index == "u":
            self.form.fix(30, 2, 0)

    def item_sign(self, prefix: str, role: str, bit: str | None) -> None:
        self.signs.append((prefix, role, int(bit or 0)))

    def item_predicate(self, uniform: str, name: str) -> None:
        self.form.claim(*PREDICATES[name], name)
        self.form.predicates[name] = "kUniformPredicate" if uniform else "kPredicate"

    def item_select(self, role: str, bits: str, enum: str | None) -> None:
        self.selects.append((role, bits, enum or ""))

    def item_field(self, name: str, bits: str, values: str | None) -> None:
        first, width = bit_range(bits)
        self.form.claim(first, width, name)
        new = Field(name, first, width)
        if values and values.startswith("."):
            if width != 1:
                raise self.form.fail(f"field [{name}] with one text is [{width}] bits wide, not 1")
            new.text = values
        elif values == "special":
            new.special = True
        elif values:
            new.enum = self.enum(values, width, name)
        self.form.fields.append(new)

    def item_fixed_field(self, name: str, bits: str, value: str) -> None:
        first, width = bit_range(bits)
        self.form.fix(first, width, int(value))
        self.form.fields.append(Field(name, first, width))

    def enum(self, name: str, width: int, user: str) -> Enum:
        if name not in self.enums:
            raise self.form.fail(f"enum [{name}] of [{user}] is not known")
        found = self.enums[name]
        if len(found.values) != 1 << width:
            raise self.form.fail(
                f"enum [{name}] has [{len(found.values)}] values, but [{user}] is "
                f"[{width}] bits wide"
            )
        return found

    def item_fixed(self, value: str, bits: str) -> None:
        self.form.fix(*bit_range(bits), int(value))

    def item_ranges(self, what: str, ranges: str) -> None:
        for part in ranges.split(","):
            first, width = bit_range(part)
            if what == "zero":
                self.form.fix(first, width, 0)
            else:
                self.form.claim(first, width, what)

    def item_option(self, what: str, value: str) -> None:
        if what == "guard" and value == "UP":
            self.form.guard = "kUniformPredicate"
        elif what == "imm" and value in IMM_KINDS:
            self.form.imm = value
        else:
            raise self.form.fail(f"[{value}] is no value of [{what}]")

    def place_sign(self, prefix: str, role: str, bit: int) -> None:
        operand = self.form.operands.get(role)
        if operand is None:
            raise self.form.fail(f"operand [{role}] of [{prefix}{role}] does not exist")
        if operand.kind == "kImm":
            return
        slot = 32 if 32 <= operand.first < 64 else operand.first
        neg, absolute = {24: (72, 73), 32: (63, 62), 64: (75, 74)}[slot]
        if prefix == "|":
            operand.abs = bit or absolute
            self.form.claim(operand.abs, 1, f"|{role}")
            return
        operand.neg = bit or neg
        self.form.claim(operand.neg, 1, f"{prefix}{role}")
        operand.inverts = {"-": "kNegates", "~": "kInverts", "-~": "kInvertsWithX"}[prefix]

    def place_select(self, role: str, bits: str, enum: str) -> None:
        first, width = bit_range(bits)
        operand = self.form.operands.get(role)
        if operand is None:
            raise self.form.fail(f"operand [{role}] of [sel_{role}] does not exist")
        if operand.kind == "kImm":
            return
        self.form.claim(first, width, f"sel_{role}")
        operand.select_first, operand.select_width = first, width
        if enum:
            operand.select = self.enum(enum, width, f"sel_{role}")

    # The text refers only to what the form has.
    def check_text(self) -> None:
        modifiers, _, operands = self.form.text.partition(" ")
        for name in re.findall(r"{(\w+)}", self.form.text):
            if name not in SPECIAL_MODIFIERS:
                self.check_field(name)
        if re.sub(r"{\w+}|[.A-Z0-9a-z]", "", modifiers):
            raise self.form.fail(f"modifier text [{modifiers}] is not understood")
        for token in filter(None, (part.strip() for part in operands.split(","))):
            condition, _, word = token.rpartition(":")
            for name in filter(None, re.split(r"[!&?]", condition)):
                self.check_field(name)
            match = re.fullmatch(r"(?:x\??|sr)\((\w+)\)", word)
            if match:
                self.check_field(match[1])
            elif re.sub(r"{\w+}|\?$", "", word) not in OPERAND_WORDS:
                raise self.form.fail(f"operand text [{word}] is not understood")
            else:
                self.check_operand(re.sub(r"{\w+}|\?$", "", word))

    def check_field(self, name: str) -> None:
        if name not in (item.name for item in self.form.fields):
            raise self.form.fail(f"the text names field [{name}], which the form does not have")

    def check_operand(self, word: str) -> None:
        form = self.form
        known = {*form.operands, *form.predicates, *(["rd"] if form.rd != "kNone" else [])}
        if word in ("rd", "a", "b", "c", *PREDICATES) and word not in known:
            raise form.fail(f"the text names operand [{word}], which the form does not have")
