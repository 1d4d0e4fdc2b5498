"""The tensor core and the special functions."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import sass_float as f
from sass import LANES, PARAMS, Const, asm
from sass_arithmetic import RD, State
from sass_model import signed
from sass_warp import Case, Expected, results

# ---- matrices: row and column of what each register of a lane holds (PTX documents, m16n8k8)


def halves(state: State, register: int, lane: int) -> tuple[int, int]:
    word = state.registers[register][lane]
    return word & 0xFFFF, word >> 16


def hmma_sum(state: State, row: int, column: int, c: int, fmt: f.Format) -> int:
    total = f.value(fmt, c)
    for k in range(8):
        a = halves(state, 4 + row // 8, row % 8 * 4 + k // 2)[k % 2]
        b = halves(state, 6, column * 4 + k // 2)[k % 2]
        total += f.value(f.HALF, a) * f.value(f.HALF, b)
    return f.encode(fmt, total, f.RN)


def hmma_f32(state: State, lane: int) -> list[int | None]:
    found: list[int | None] = []
    for r in range(4):
        row, column = lane // 4 + 8 * (r // 2), 2 * (lane % 4) + r % 2
        c = state.registers[8 + r][lane]
        found.append(hmma_sum(state, row, column, c, f.SINGLE))
    return found


def hmma_f16(state: State, lane: int) -> list[int | None]:
    found: list[int | None] = []
    for r in range(2):
        row = lane // 4 + 8 * r
        c = halves(state, 12 + r, lane)
        low, high = (hmma_sum(state, row, 2 * (lane % 4) + i, c[i], f.HALF) for i in range(2))
        found.append(high << 16 | low)
    return found


def parts(word: int, bits: int, is_signed: int) -> list[int]:
    found = [word >> i & (1 << bits) - 1 for i in range(0, 32, bits)]
    return [signed(v, bits) if is_signed else v for v in found]


def imma(bits: int, a_signed: int, b_signed: int, saturates: int) -> Expected:
    """m8n8k16 or k32: lane 4 r + q has row r of A, column r of B, from k = q * 32 / bits on."""

    def expected(state: State, lane: int) -> list[int | None]:
        found: list[int | None] = []
        for i in range(2):
            row, column = lane // 4, 2 * (lane % 4) + i
            total = signed(state.registers[14 + i][lane])
            for q in range(4):
                a = parts(state.registers[4][row * 4 + q], bits, a_signed)
                b = parts(state.registers[6][column * 4 + q], bits, b_signed)
                total += sum(x * y for x, y in zip(a, b, strict=True))
            if saturates:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            found.append(total & 0xFFFFFFFF)
        return found

    return expected


def small_halves(source: random.Random) -> list[int]:
    """Multiples of 1/4 whose products and sums no format has to round."""
    words = []
    for _ in range(LANES):
        low, high = (
            f.encode(f.HALF, f.Fraction(source.randrange(-16, 17), 4), f.RN) for _ in range(2)
        )
        words.append(high << 16 | low)
    return words


def exact_state(source: random.Random) -> State:
    """R4..R6 and R12..R13 small halves, R8..R11 small floats, R14 and R15 integers."""
    state = State(source)
    for register in (4, 5, 6, 12, 13):
        state.registers[register] = small_halves(source)
    for register in range(8, 12):
        state.registers[register] = [
            f.encode(f.SINGLE, f.Fraction(source.randrange(-999, 999), 16), f.RN)
            for _ in range(LANES)
        ]
    return state


def tensor() -> list[Case]:
    cases = [
        Case("HMMA f32", [asm("HMMA_RRR", rd=RD, a=4, b=6, c=8, ACC=1)], hmma_f32),
        Case("HMMA f16", [asm("HMMA_RRR", rd=RD, a=4, b=6, c=12, ACC=0)], hmma_f16),
    ]
    for form, bits in (("IMMA_RRR", 8), ("IMMA_RRR_4", 4)):
        for n in range(8):
            a, b, saturates = n & 1, n >> 1 & 1, n >> 2
            fields = {"A_SIGNED": a, "B_SIGNED": b, "SAT": saturates, "B_LAYOUT": 1}
            nibbles = {"NIBBLES": 1} if bits == 4 else {}
            word = asm(form, rd=RD, a=4, b=6, c=14, **fields, **nibbles)
            cases.append(Case(f"{form} {n}", [word], imma(bits, a, b, saturates)))
    return cases


# ---- MUFU

FUNCTIONS = {
    0: lambda x: math.cos(2 * math.pi * x),
    1: lambda x: math.sin(2 * math.pi * x),
    2: lambda x: 2.0**x,
    3: math.log2,
    4: lambda x: 1 / x,
    5: lambda x: 1 / math.sqrt(x),
    8: math.sqrt,
    9: math.tanh,
}
RCP64H, RSQ64H = 6, 7
ULPS = 2  # stated in the README: 1; the reference itself is rounded


def special_inputs(source: random.Random, exponent: float) -> list[int]:
    """Arguments for which all functions have a normal result."""
    return [
        struct.unpack("<I", struct.pack("<f", 2 ** source.uniform(-6, exponent)))[0]
        for _ in range(LANES)
    ]


def to_float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def close(function: int, argument: int, got: int) -> bool:
    x = to_float(argument)
    if function in (0, 1):  # absolute: near a zero no digit of the result is exact
        return abs(to_float(got) - FUNCTIONS[function](x)) < 2.0**-22
    if function in (RCP64H, RSQ64H):
        wide = struct.unpack("<d", struct.pack("<Q", argument << 32))[0]
        want = 1 / wide if function == RCP64H else 1 / math.sqrt(wide)
        found = struct.unpack("<d", struct.pack("<Q", got << 32))[0]
        return abs(found / want - 1) < 2.0**-18
    want = FUNCTIONS[function](x)
    size = max(abs(want), 2.0**-20 if function == 3 else 0)
    return abs(to_float(got) - want) <= ULPS * 2.0**-23 * size


def half_close(function: int, argument: int, got: int) -> bool:
    x = float(f.value(f.HALF, argument))
    want = FUNCTIONS[function](x)
    return got >> 16 == 0 and abs(float(f.value(f.HALF, got)) / want - 1) < 2.0**-10


OPERANDS = {"R": 4, "U": 4, "C": Const(0, PARAMS + 8), "I": 0x40490FDB}


def mufu_case(form: str, function: int, select: int, state: State) -> tuple[Case, list[int]]:
    """The case and the arguments of its lanes."""
    kind, is_half = form[0], "16" in form
    operand = OPERANDS[kind]
    arguments = {
        "R": state.registers[4],
        "U": [state.uniforms[4]] * LANES,
        "C": [state.constants[0]] * LANES,
        "I": [0x40490FDB] * LANES,
    }[kind]
    if is_half:
        arguments = [v >> 16 * select & 0xFFFF for v in arguments]
    fields = {"FUNC": function, "F16": int(is_half)}
    code = [asm(f"MUFU_{form}", rd=RD, b=operand, selects={"b": select}, **fields)]
    return Case(f"MUFU {form} {function}", code, lambda _s, _l: [None]), arguments


def mufu_state(source: random.Random, is_half: bool) -> State:
    state = State(source)
    most = 3.9 if is_half else 5  # the power of two is no infinity
    values = special_inputs(source, most)
    if is_half:
        values = [
            f.convert(f.SINGLE, f.HALF, low, f.RN) | f.convert(f.SINGLE, f.HALF, high, f.RN) << 16
            for low, high in zip(values, special_inputs(source, most), strict=True)
        ]
    state.registers[4] = values
    state.uniforms[4] = state.constants[0] = values[7]
    return state


def wrong_mufu(form: str, path: Path, source: random.Random) -> list[str]:
    is_half = "16" in form
    functions = (2, 9) if is_half else range(10)
    wrong = []
    for function in functions:
        state = mufu_state(source, is_half)
        if function in (RCP64H, RSQ64H) and form[0] == "I":
            continue
        case, arguments = mufu_case(form, function, source.randrange(2), state)
        check = half_close if is_half else close
        for lane, (got, *_) in enumerate(results(case, state, path)):
            if not check(function, arguments[lane], got):
                wrong.append(f"{case.name} of [{arguments[lane]:#x}] gives [{got:#x}]")
    return wrong
