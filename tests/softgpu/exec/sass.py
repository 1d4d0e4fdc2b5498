"""A small assembler on the instruction table, and a runner of what it assembles.

Words are made from the table's items alone, so that every form can be written: registers by
number, fields by name. The executor's own decoder takes them apart again.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools/gen"))
from isa_form import PREDICATES, Form  # noqa: E402
from isa_table import Table  # noqa: E402

TABLE = Table((ROOT / "softgpu/isa/sm75.isa").read_text())
FORMS = {form.full_name: form for form in TABLE.forms}
MEMORY = 0x10000000000  # where run_sass has the memory
PARAMS = 0x160  # of bank 0
RZ, URZ, PT = 255, 63, 7
LANES = 32


@dataclass
class Const:
    bank: int
    offset: int


@dataclass
class Word:
    """One instruction: a form and the values of what it leaves open."""

    form: Form
    fields: dict[str, int] = field(default_factory=dict)
    operands: dict[str, int | Const] = field(default_factory=dict)  # register, immediate, constant
    negated: set[str] = field(default_factory=set)
    absolute: set[str] = field(default_factory=set)
    selects: dict[str, int] = field(default_factory=dict)
    predicates: dict[str, tuple[int, bool]] = field(default_factory=dict)  # index, negated
    rd: int = RZ
    guard: tuple[int, bool] = (PT, False)

    def encode(self) -> bytes:
        bits = dict.fromkeys(range(128), 0)

        def put(first: int, width: int, value: int) -> None:
            for i in range(width):
                bits[first + i] = value >> i & 1

        put(0, 12, self.form.opcode)
        put(12, 3, self.guard[0])
        put(15, 1, self.guard[1])
        if self.form.rd != "kNone":
            put(16, 8 if self.form.rd == "kVector" else 6, self.rd)
        for item in self.form.fields:
            put(item.first, item.width, self.fields.get(item.name, 0))
        for name, (first, width) in PREDICATES.items():
            if name in self.form.predicates:
                index, negated = self.predicates.get(name, (PT, False))
                put(first, width, index | negated << 3 if width == 4 else index)
        for role, operand in self.form.operands.items():
            value = self.operands[role]
            if isinstance(value, Const):
                put(38, 21, value.bank << 16 | value.offset)
            else:
                put(operand.first, operand.width, value)
            if operand.neg:
                put(operand.neg, 1, role in self.negated)
            if operand.abs:
                put(operand.abs, 1, role in self.absolute)
            if operand.select_width:
                put(operand.select_first, operand.select_width, self.selects.get(role, 0))
        bits.update(self.form.fixed)
        value = sum(bit << at for at, bit in bits.items())
        return value.to_bytes(16, "little")


def asm(
    name: str,
    *,
    rd: int = RZ,
    guard: tuple[int, bool] = (PT, False),
    selects: dict[str, int] | None = None,
    **values: int | Const | tuple[int, bool],
) -> bytes:
    """asm("IADD3_RIR", rd=4, a=4, b=1, c=RZ): small names are operands, capital ones fields."""
    word = Word(FORMS[name], rd=rd, guard=guard, selects=selects or {})
    for key, value in values.items():
        if isinstance(value, tuple):
            word.predicates[key] = value
        elif key in PREDICATES:
            word.predicates[key] = (int(value), False)  # type: ignore[arg-type]
        elif key.isupper() or not isinstance(value, Const) and key not in "abc":
            word.fields[key] = value  # type: ignore[assignment]
        else:
            word.operands[key] = value
    return word.encode()


EXIT = asm("EXIT_plain")


@dataclass
class Kernel:
    text: list[bytes]
    memory: bytearray
    params: bytes = b""
    shared: int = 0
    local: int = 0
    blocks: int = 1
    threads: int = LANES

    def run(self, path: Path, *, ok: bool = True) -> tuple[bytes, str]:
        """Memory afterwards, and what the executor says: with each instruction set the same."""
        text = b"".join(self.text)
        header = (len(text), len(self.params), len(self.memory), self.shared, self.local)
        path.write_bytes(
            struct.pack("<8I", *header, self.blocks, self.threads, 0)
            + text
            + self.params
            + self.memory
        )
        first = None
        for runner in os.environ["SOFTGPU_RUN_SASS"].split(":"):
            done = subprocess.run([runner, str(path)], capture_output=True, timeout=60)
            said = done.stderr.decode()
            assert (done.returncode == 0) == ok, f"{runner}: {said}"
            first = first or done
            assert (done.stdout, done.stderr) == (first.stdout, first.stderr), f"{runner}: {said}"
        return first.stdout, first.stderr.decode()
