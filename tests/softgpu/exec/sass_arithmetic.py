"""Kernels that execute every arithmetic form with every combination of its modifiers on random
operands, and the comparison with sass_model."""

from __future__ import annotations

import itertools
import random
import struct

import sass_model
from sass import EXIT, LANES, MEMORY, PARAMS, PT, RZ, URZ, Const, Kernel, Word, asm
from sass_model import M32, Lane, Operand

REGISTERS = range(4, 28)  # hold random operands
UNIFORMS = range(4, 20)
PREDICATES = range(5)
CONSTANTS = 16  # words behind the pointer in the parameters
PRED_INPUT, RD, OUT, URD = 28, 32, 2, 24
SLOT_BYTES = LANES * 16  # per tested word: Rd, Rd + 1, predicates, spare
MOST_COMBINATIONS, FEWEST_WORDS = 192, 16  # of one form
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, M32, 0x3F800000, 0xBF800000]
EDGES += [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x80000001, 0x00800000, 0x7F7FFFFF]
EDGES += [0x4F000000, 0xCF000000, 0x33800000, 0x3C003C00, 0x7C00FC00, 0x7E000001, 0x03FF8400]
EDGES += [0x3FF00000, 0x7FF00000, 0xFFF80000, 0x43E00000, 0xC1E00000, 0x3E700000, 0x000FFFFF]


def random_word(source: random.Random) -> int:
    kind = source.randrange(5)
    if kind == 0:
        return source.choice(EDGES)
    if kind == 1:  # a float of middling size, so that sums and comparisons meet
        return (
            source.getrandbits(1) << 31 | source.randrange(96, 160) << 23 | (source.getrandbits(23))
        )
    if kind == 2:
        return source.getrandbits(8)
    return source.getrandbits(32)


class State:
    """The random contents of everything that a tested word may read."""

    def __init__(self, source: random.Random) -> None:
        self.registers = {r: [random_word(source) for _ in range(LANES)] for r in range(4, 29)}
        self.uniforms = {u: random_word(source) for u in UNIFORMS}
        self.predicates = [source.getrandbits(32) for _ in PREDICATES]
        for lane in range(LANES):
            bits = sum((p >> lane & 1) << i for i, p in enumerate(self.predicates))
            self.registers[PRED_INPUT][lane] = bits
        self.uniform_predicates = [source.getrandbits(1) for _ in PREDICATES]
        self.constants = [random_word(source) for _ in range(CONSTANTS)]

    def params(self) -> bytes:
        return struct.pack(f"<Q{CONSTANTS}I", MEMORY, *self.constants)

    def register(self, index: int, lane: int) -> int:
        return 0 if index == RZ else self.registers[index][lane]

    def uniform(self, index: int) -> int:
        return 0 if index == URZ else self.uniforms[index]

    def constant(self, const: Const) -> int:
        return self.constants[(const.offset - (PARAMS if const.bank == 0 else 0)) // 4 - 2]

    def predicate(self, index: int, negated: bool, uniform: bool, lane: int) -> bool:
        if index == PT:
            value = True
        elif uniform:
            value = bool(self.uniform_predicates[index])
        else:
            value = bool(self.predicates[index] >> lane & 1)
        return value != negated


def prelude(state: State) -> list[bytes]:
    """R2 = memory + 16 * thread; loads registers, uniform registers and predicates."""
    base = Const(0, PARAMS)
    code = [
        asm("S2R_sr", rd=0, SR=33),
        asm("MOV_I", rd=1, b=4),
        asm("IMAD_WIDE_RRC", rd=36, a=0, b=1, c=base),
        asm("MOV_I", rd=1, b=16),
        asm("IMAD_WIDE_RRC", rd=OUT, a=0, b=1, c=base),
    ]
    for i, r in enumerate(range(4, 29)):
        code.append(asm("LDG_reg", rd=r, a=36, OFFSET=i * 128, E=1, SIZE=4, ORDER=1, SCOPE=3))
    for u, value in state.uniforms.items():
        code.append(asm("UMOV_I", rd=u, b=value))
    bits = sum(p << i for i, p in enumerate(state.uniform_predicates))
    code.append(asm("UMOV_I", rd=30, b=bits))
    for i in PREDICATES:
        code.append(asm("ULOP3_UIU", rd=31, a=30, b=1 << i, c=URZ, LUT=0xC0, pd0=i, ps0=(PT, True)))
    return code


INPUT_BYTES = 25 * 128


def observe(word: Word, slot: int) -> list[bytes]:
    """The word, between setting what it writes and storing it."""
    offset = INPUT_BYTES + slot * SLOT_BYTES
    uniform = any(kind == "kUniformPredicate" for kind in word.form.predicates.values())
    code = [
        asm("R2P_imm", a=PRED_INPUT, b=0x7F),
        asm("CS2R_sr", rd=RD, SR=255, W64=1),
    ]
    if uniform:
        code.append(asm("UPLOP3_plain", pd0=5, pd1=6))
    if word.form.rd == "kUniform":
        code += [asm("UMOV_I", rd=URD, b=0), asm("UMOV_I", rd=URD + 1, b=0)]
    code.append(word.encode())
    if word.form.rd == "kUniform":
        code += [asm("MOV_U", rd=RD, b=URD), asm("MOV_U", rd=RD + 1, b=URD + 1)]
    if uniform:
        for i in (5, 6):
            code.append(asm("PLOP3_plain", pd0=i, ps2=i, PS2_UNIFORM=1, LUT0_LO=2, LUT0_HI=0x15))
    code.append(asm("P2R_imm", rd=RD + 2, a=RZ, b=0x7F))
    code.append(asm("STG_reg", a=OUT, b=RD, OFFSET=offset, E=1, SIZE=6, ORDER=1, SCOPE=3))
    return code


def legal(form_field: object) -> list[int]:
    item = form_field
    if item.enum:  # type: ignore[attr-defined]
        return [v for v in range(1 << item.width) if item.enum.legal() >> v & 1]  # type: ignore
    return list(range(1 << item.width))  # type: ignore[attr-defined]


def combinations(form: object, source: random.Random) -> list[dict[str, int]]:
    """Values of the modifier fields: all combinations, or as many as are allowed."""
    open_fields = [i for i in form.fields if i.first not in form.fixed]  # type: ignore
    named = [i for i in open_fields if i.enum or i.text or i.width <= 2]
    free = [i for i in open_fields if i not in named]
    fixed = {
        i.name: sum(form.fixed[i.first + k] << k for k in range(i.width))  # type: ignore
        for i in form.fields  # type: ignore[attr-defined]
        if i.first in form.fixed  # type: ignore[attr-defined]
    }
    every = [
        dict(zip((i.name for i in named), values, strict=True))
        for values in itertools.product(*(legal(i) for i in named))
    ]
    if len(every) > MOST_COMBINATIONS:
        every = source.sample(every, MOST_COMBINATIONS)
    while len(every) < FEWEST_WORDS:
        every += [dict(one) for one in every]
    return [fixed | one | {i.name: source.getrandbits(i.width) for i in free} for one in every]


def random_operands(word: Word, source: random.Random) -> None:
    form = word.form
    for role, operand in form.operands.items():
        if operand.kind == "kReg":
            word.operands[role] = RZ if source.random() < 0.1 else source.choice(REGISTERS[::2])
        elif operand.kind == "kUReg":
            word.operands[role] = URZ if source.random() < 0.1 else source.choice(UNIFORMS[::2])
        elif operand.kind == "kConst":
            offset = 8 + 8 * source.randrange(CONSTANTS // 2)
            bank = source.choice((0, 2, 3))
            word.operands[role] = Const(bank, offset + (PARAMS if bank == 0 else 0))
        elif form.op == "IMAD":  # factors with names of their own
            word.operands[role] = 1 << source.choice((0, 0, 4, 9, 16))
        else:
            word.operands[role] = random_word(source)
        if operand.neg and source.random() < 0.3:
            word.negated.add(role)
        if operand.abs and source.random() < 0.3:
            word.absolute.add(role)
        if operand.select:
            values = [
                v for v in range(1 << operand.select_width) if operand.select.legal() >> v & 1
            ]
            word.selects[role] = source.choice(values)
        elif operand.select_width and operand.kind != "kConst" or "_" in form.name:
            word.selects[role] = source.randrange(1 << operand.select_width)


def random_instruction(form: object, fields: dict[str, int], source: random.Random) -> Word:
    word = Word(form, fields=fields, rd=RD if form.rd != "kUniform" else URD)  # type: ignore
    random_operands(word, source)
    for name in form.predicates:  # type: ignore[attr-defined]
        if name.startswith("pd"):
            word.predicates[name] = (5 if name == "pd0" else 6, False)
        else:
            index = PT if source.random() < 0.3 else source.choice(PREDICATES)
            word.predicates[name] = (index, source.random() < 0.3)
    if source.random() < 0.2:
        word.guard = (source.choice(PREDICATES), source.random() < 0.5)
    return word


def lane_operand(word: Word, role: str, state: State, lane: int) -> Operand:
    info = word.form.operands.get(role)
    if info is None:
        return Operand(0, 0)
    value = word.operands[role]
    double = word.form.op in ("DADD", "DMUL", "DFMA", "DSETP")
    if isinstance(value, Const):
        low = state.constant(value)
        high = state.constant(Const(value.bank, value.offset + 4))
    elif info.kind == "kImm":
        low, high = (0, value) if double else (value, 0)
    elif info.kind == "kUReg":
        low = state.uniform(value)
        high = 0 if value == URZ else state.uniform(value + 1)
    else:
        low = state.register(value, lane)
        high = 0 if value == RZ else state.register(value + 1, lane)
    return Operand(
        low,
        high << 32 | low,
        role in word.negated,
        role in word.absolute,
        word.selects.get(role, 0),
    )


def expected(word: Word, state: State, lane: int) -> sass_model.Result:
    form = word.form
    a, b, c = (lane_operand(word, role, state, lane) for role in "abc")
    uniform = [form.predicates.get(n) == "kUniformPredicate" for n in ("ps0", "ps1", "ps2")]
    uniform[2] = uniform[2] or bool(word.fields.get("PS2_UNIFORM"))
    ps = tuple(
        state.predicate(*word.predicates.get(name, (PT, False)), is_uniform, lane)
        for name, is_uniform in zip(("ps0", "ps1", "ps2"), uniform, strict=True)
    )
    x = Lane(form.op, form.name, word.fields, a, b, c, ps, False)  # type: ignore[arg-type]
    return sass_model.MODELS[form.op](x)


def is_nan64(bits: int) -> bool:
    return bits & (1 << 63) - 1 > 0x7FF << 52


def difference(word: Word, state: State, lane: int, found: tuple[int, int, int]) -> str:
    """Empty when the lane has what the model wants."""
    form = word.form
    executes = state.predicate(*word.guard, form.guard == "kUniformPredicate", lane)
    result = expected(word, state, lane) if executes else (0, False, False)
    value, pd0, pd1 = result if isinstance(result, tuple) else (result, None, None)
    low, high, bits = found
    wide = sass_model.result_bits(form.op, word.fields) == 64
    got = high << 32 | low if wide else low
    has_value = value is not None and form.rd != "kNone"
    if (
        has_value
        and got != value
        and not (
            wide and form.op[0] in "DF" and is_nan64(got) and is_nan64(value)  # type: ignore
        )
    ):
        return f"lane [{lane}] gives [{got:#x}] instead of [{value:#x}]"
    for name, want, bit in (("pd0", pd0, 5), ("pd1", pd1, 6)):
        if want is not None and name in form.predicates and bool(bits >> bit & 1) != want:
            return f"lane [{lane}] gives predicate [{name}] [{not want}]"
    return ""


def make_kernel(words: list[Word], state: State) -> Kernel:
    code = prelude(state)
    for slot, word in enumerate(words):
        code += observe(word, slot)
    memory = bytearray(INPUT_BYTES + len(words) * SLOT_BYTES)
    for i, r in enumerate(range(4, 29)):
        struct.pack_into(f"<{LANES}I", memory, i * 128, *state.registers[r])
    return Kernel([*code, EXIT], memory, state.params())


def compare(words: list[Word], state: State, memory: bytes) -> list[tuple[Word, str]]:
    wrong = []
    for slot, word in enumerate(words):
        at = INPUT_BYTES + slot * SLOT_BYTES
        lanes = list(struct.iter_unpack("<4I", memory[at : at + SLOT_BYTES]))
        for lane, (low, high, bits, _) in enumerate(lanes):
            why = difference(word, state, lane, (low, high, bits))
            if why:
                wrong.append((word, why))
                break
    return wrong
