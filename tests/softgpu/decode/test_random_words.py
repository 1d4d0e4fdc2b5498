"""Random legal words of every form: the vendor's disassembler accepts them and prints the same.

SOFTGPU_SEED chooses other words.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tools/gen")]
import vendor  # noqa: E402
from isa_form import Form  # noqa: E402
from isa_table import Table  # noqa: E402

WORDS_PER_FORM = 40


def put(word: int, first: int, width: int, value: int) -> int:
    mask = (1 << width) - 1 << first
    return word & ~mask | value << first


def legal_values(form: Form, special: list[int]) -> list[tuple[int, int, list[int]]]:
    """First bit, width and values of what is not free in a word of `form`."""
    found = [(bit, 1, [value]) for bit, value in form.fixed.items()]
    for item in form.fields:
        if item.special:
            found.append((item.first, item.width, special))
        elif item.enum:
            values = [v for v in range(1 << item.width) if item.enum.legal() >> v & 1]
            found.append((item.first, item.width, values))
    for operand in form.operands.values():
        if operand.select:
            values = [
                v for v in range(1 << operand.select_width) if operand.select.legal() >> v & 1
            ]
            found.append((operand.select_first, operand.select_width, values))
    return found


def random_word(form: Form, special: list[int], source: random.Random) -> bytes:
    word = source.getrandbits(105)
    if source.random() < 0.7:
        word = put(word, 12, 4, 7)
    for first, width, values in legal_values(form, special):
        word = put(word, first, width, source.choice(values))
    return vendor.without_scheduling(put(word, 0, 12, form.opcode).to_bytes(16, "little"))


def test_random_words(tmp_path: Path) -> None:
    table = Table((ROOT / "softgpu/isa/sm75.isa").read_text())
    seed = int(os.environ.get("SOFTGPU_SEED", "1"))
    print(f"SOFTGPU_SEED={seed}")
    source = random.Random(seed)
    special = list(table.special.values())
    code = b"".join(
        random_word(form, special, source) for form in table.forms for _ in range(WORDS_PER_FORM)
    )
    vendor.check_texts(code, tmp_path / "code")
