"""Kernels that execute every load, store and atomic form, and what memory must hold afterwards.

Each lane owns 64 bytes. A tested word finds R4..R19 there; afterwards its destination and the bytes
are stored for the comparison.
"""

from __future__ import annotations

import itertools
import random
import struct

import sass_float as f
from sass import EXIT, LANES, MEMORY, PARAMS, RZ, Const, Form, Kernel, Word, asm
from sass_arithmetic import INPUT_BYTES, PRED_INPUT, State, legal, prelude
from sass_model import M32, M64, signed

AREA_BYTES, AREA, RESULT_BYTES = 64, INPUT_BYTES, 16 + 64
AREA_TOTAL = LANES * AREA_BYTES
RD, DATA, NEW, READ = 32, 20, 24, 40
LANE64, LANE16, LANE8, LANE4 = 30, 57, 58, 59  # lane * 64 (a pair) and what a scale multiplies
GLOBAL, OUT = 60, 62  # pairs: area of the lane, results
BASE_UR, SHIFT_UR = 20, 22  # pair: all areas; 128
SIZES = (1, 1, 2, 2, 4, 8, 16, 16)
LOADS = ("LDG", "LD", "LDS", "LDL")
STORES = ("STG", "ST", "STS", "STL")
ATOMICS = ("ATOM", "ATOMG", "RED", "ATOMS", "ATOM_CAS", "ATOMG_CAS", "ATOMS_CAS")
U32, S32, B64, F32, F16X2, S64, F64 = range(7)
ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH = range(9)
TYPED_OPS = {
    U32: set(range(9)),
    S32: {ADD, MIN, MAX},
    B64: {ADD, MIN, MAX, AND, OR, XOR, EXCH},
    F32: {ADD},
    F16X2: {ADD},
    S64: {MIN, MAX},
    F64: {ADD},
}


# What the compilers of PyTorch write: each with all sizes and operations.
HINTS: tuple[dict[str, int], ...] = (
    {"ORDER": 0},
    {"LTC": 2},
    {"U": 1},
    {"ORDER": 2, "SCOPE": 0},
    {"ORDER": 2, "SCOPE": 2},
    {"ORDER": 2, "SCOPE": 3},
)


def space(op: str) -> str:
    if op in ("LDS", "STS", "ATOMS", "ATOMS_CAS"):
        return "shared"
    return "local" if op in ("LDL", "STL") else "global"


def combinations(form: Form, source: random.Random) -> list[dict[str, int]]:
    """Modifiers: all sizes and operations; cache hints and scopes at random, but each once."""
    important = {"SIZE", "TYPE", "OP", "MODE", "SCALE", "A64"}
    key = [i for i in form.fields if i.name in important]
    rest = [i for i in form.fields if i.name not in important | {"OFFSET", "OFFSET32", "E"}]
    every = []
    for values in itertools.product(*(legal(i) for i in key)):
        one = dict(zip((i.name for i in key), values, strict=True))
        if "OP" in one and "TYPE" in one and one["OP"] not in TYPED_OPS[one["TYPE"]]:
            continue
        one["E"] = 1
        every.append(one)
    most = max((len(legal(i)) for i in rest), default=1)
    plain = {"ORDER": 1, "SCOPE": 3, "EVICT": 1}
    result = [one | {i.name: plain.get(i.name, 0) for i in rest} for one in every]
    for n in range(max(most, 4)):
        hints = {i.name: legal(i)[n % len(legal(i))] for i in rest}
        result += [one | hints for one in source.sample(every, min(4, len(every)))]
    fields = {i.name: i for i in rest}
    for hint in HINTS:
        if all(name in fields and value in legal(fields[name]) for name, value in hint.items()):
            result += [one | plain | hint for one in every]
    return [with_zeros(one, form) for one in result]


def with_zeros(fields: dict[str, int], form: Form) -> dict[str, int]:
    return {i.name: fields.get(i.name, 0) for i in form.fields}


def element_bytes(word: Word) -> int:
    if "SIZE" in word.fields:
        return SIZES[word.fields["SIZE"]]
    return 8 if word.fields["TYPE"] in (B64, S64, F64) else 4


def set_address(word: Word, at: int) -> None:
    """Registers and offset so that the lane reaches byte `at` of its area."""
    fields, where = word.fields, space(word.form.op)
    uniform = "ur" in word.form.name
    name = "OFFSET32" if "OFFSET32" in fields else "OFFSET"
    if where == "global":
        word.operands["a"] = LANE64 if uniform else GLOBAL
        if uniform:
            word.operands["c"] = BASE_UR
    elif where == "local":
        word.operands["a"] = RZ
    else:
        scale = fields.get("SCALE", 0)
        word.operands["a"] = (LANE64, LANE16, LANE8, LANE4)[scale]
        if uniform:
            word.operands["c"] = SHIFT_UR
            at -= 128
    width = 32 if name == "OFFSET32" else 24
    fields[name] = at & (1 << width) - 1


def random_access(form: Form, fields: dict[str, int], source: random.Random) -> tuple[Word, int]:
    word = Word(form, fields=dict(fields), rd=RD)
    size = element_bytes(word)
    at = source.randrange(AREA_BYTES // size) * size
    set_address(word, at)
    if form.op.endswith("_CAS"):
        equal = source.random() < 0.5
        word.operands["b"] = (4 + at // 4) if equal else DATA
        word.operands["c"] = NEW
    elif form.op not in LOADS:
        word.operands["b"] = DATA
    word.predicates = {name: (5, False) for name in form.predicates if name == "pd0"}
    if source.random() < 0.3:
        word.guard = (source.randrange(5), source.random() < 0.5)
    return word, at


def lane_prelude() -> list[bytes]:
    code = [asm("S2R_sr", rd=0, SR=33)]
    for register, factor in ((LANE64, 64), (LANE16, 16), (LANE8, 8), (LANE4, 4)):
        code.append(asm("IMAD_RIR", rd=register, a=0, b=factor, c=RZ))
    code += [
        asm("MOV_I", rd=LANE64 + 1, b=0),
        asm("MOV_I", rd=1, b=1),
        asm("IMAD_WIDE_RRC", rd=GLOBAL, a=LANE64, b=1, c=Const(0, PARAMS)),
        asm("IADD3_RIR", rd=GLOBAL, a=GLOBAL, b=AREA, c=RZ),
        asm("MOV_I", rd=1, b=RESULT_BYTES),
        asm("IMAD_WIDE_RRC", rd=OUT, a=0, b=1, c=Const(0, PARAMS)),
        asm("UMOV_I", rd=BASE_UR, b=(MEMORY + AREA) & M32),
        asm("UMOV_I", rd=BASE_UR + 1, b=MEMORY >> 32),
        asm("UMOV_I", rd=SHIFT_UR, b=128),
    ]
    return code


def whole_area(where: str, *, stores: bool) -> list[bytes]:
    name = {"global": "STG" if stores else "LDG", "shared": "STS" if stores else "LDS"}
    op = name.get(where, "STL" if stores else "LDL")
    address = {"global": GLOBAL, "shared": LANE64, "local": RZ}[where]
    hints = {"global": {"E": 1, "ORDER": 1, "SCOPE": 3, "EVICT": 1}, "local": {"EVICT": 1}}
    code = []
    for k in range(4):
        common = {"a": address, "SIZE": 6, "OFFSET": 16 * k, **hints.get(where, {})}
        if stores:
            code.append(asm(f"{op}_reg", **common, b=4 + 4 * k))
        else:
            code.append(asm(f"{op}_reg", **common, rd=READ + 4 * k))
    return code


def observe(word: Word, offset: int) -> list[bytes]:
    where = space(word.form.op)
    store = {"a": OUT, "E": 1, "SIZE": 6, "ORDER": 1, "SCOPE": 3, "EVICT": 1}
    code = whole_area(where, stores=True)
    code += [asm("CS2R_sr", rd=RD + 2 * i, SR=255, W64=1) for i in (0, 1)]
    code.append(word.encode())
    code += whole_area(where, stores=False)
    code.append(asm("STG_reg", **store, b=RD, OFFSET=offset))
    code += [asm("STG_reg", **store, b=READ + 4 * k, OFFSET=offset + 16 + 16 * k) for k in range(4)]
    return code


def make_kernel(words: list[Word], state: State) -> Kernel:
    results = AREA + AREA_TOTAL
    code = prelude(state) + lane_prelude() + [asm("R2P_imm", a=PRED_INPUT, b=0x7F)]
    for slot, word in enumerate(words):
        code += observe(word, results + slot * LANES * RESULT_BYTES)
    memory = bytearray(results + len(words) * LANES * RESULT_BYTES)
    for i, r in enumerate(range(4, 29)):
        struct.pack_into(f"<{LANES}I", memory, i * 128, *state.registers[r])
    return Kernel([*code, EXIT], memory, state.params(), shared=AREA_TOTAL + 256, local=256)


# ---- the model


def half_pair_add(old: int, new: int) -> int:
    low = f.add(f.HALF, old & 0xFFFF, new & 0xFFFF, f.RN)
    return f.add(f.HALF, old >> 16, new >> 16, f.RN) << 16 | low


def combined(op: int, kind: int, old: int, new: int) -> int:
    bits = 64 if kind in (B64, S64, F64) else 32
    mask = M64 if bits == 64 else M32
    if kind == F32:
        total = f.add(f.SINGLE, f.flush(f.SINGLE, old), f.flush(f.SINGLE, new), f.RN)
        return f.flush(f.SINGLE, total)
    if kind == F64:
        return f.add(f.DOUBLE, old, new, f.RN)
    if kind == F16X2:
        return half_pair_add(old, new)
    key = (lambda v: signed(v, bits)) if kind in (S32, S64) else (lambda v: v)
    match op:
        case 0:
            return old + new & mask
        case 1:
            return min(old, new, key=key)
        case 2:
            return max(old, new, key=key)
        case 3:
            return 0 if old >= new else old + 1
        case 4:
            return new if old == 0 or old > new else old - 1
        case 5:
            return old & new
        case 6:
            return old | new
        case 7:
            return old ^ new
        case _:
            return new


def read(area: bytes, at: int, size: int) -> int:
    return int.from_bytes(area[at : at + size], "little")


def expected(word: Word, at: int, state: State, lane: int) -> tuple[int, bytes]:
    """Destination (128 bits) and bytes of the area."""
    area = bytearray(struct.pack("<16I", *(state.registers[r][lane] for r in range(4, 20))))
    if not state.predicate(*word.guard, False, lane):
        return 0, bytes(area)
    op, size = word.form.op, element_bytes(word)
    old = read(area, at, size)
    data = sum(state.registers[DATA + k][lane] << 32 * k for k in range(4))
    rd, new = 0, None
    if op in LOADS:
        narrow = word.fields["SIZE"] in (1, 3)
        rd = signed(old, 8 * size) & M32 if narrow else old
    elif op in STORES:
        new = data & (1 << 8 * size) - 1
    elif op.endswith("_CAS"):
        first = word.operands["b"]
        compare = sum(state.registers[first + k][lane] << 32 * k for k in range(size // 4))
        wanted = sum(state.registers[NEW + k][lane] << 32 * k for k in range(size // 4))
        new = wanted if old == compare else old
        rd = int(old == compare) if word.fields.get("MODE", 0) else old
    else:
        kind = word.fields["TYPE"]
        new = combined(word.fields["OP"], kind, old, data & (1 << 8 * size) - 1)
        rd = 0 if op == "RED" else old
    if new is not None:
        area[at : at + size] = new.to_bytes(size, "little")
    return rd, bytes(area)


def same_numbers(word: Word, got: bytes, want: bytes) -> bool:
    """NaNs of a double addition have no agreed bits."""
    if word.fields.get("TYPE") != F64:
        return got == want
    pairs = zip(struct.unpack("<8Q", got), struct.unpack("<8Q", want), strict=True)
    return all(a == b or f.is_nan(f.DOUBLE, a) and f.is_nan(f.DOUBLE, b) for a, b in pairs)


def compare(words: list[tuple[Word, int]], state: State, memory: bytes) -> list[str]:
    wrong = []
    for slot, (word, at) in enumerate(words):
        for lane in range(LANES):
            start = AREA + AREA_TOTAL + (slot * LANES + lane) * RESULT_BYTES
            rd = int.from_bytes(memory[start : start + 16], "little")
            area = memory[start + 16 : start + RESULT_BYTES]
            want_rd, want_area = expected(word, at, state, lane)
            if rd != want_rd or not same_numbers(word, area, want_area):
                wrong.append(
                    f"{word.form.full_name} {word.fields} byte [{at}] lane [{lane}]: destination "
                    f"[{rd:#x}] instead of [{want_rd:#x}], area {area.hex()} instead of "
                    f"{want_area.hex()}"
                )
                break
    return wrong


OPS = [*LOADS, *STORES, *ATOMICS]
