"""What each arithmetic instruction does to one lane, written from the fact sheet and PTX documents.

A function takes the Lane (operands as the instruction sees them, fields by name) and returns the
destination, or (destination, Pd0, Pd1); None stands for what is not specified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import sass_float as f

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
Result = int | None | tuple[int | None, bool | None, bool | None]


@dataclass
class Operand:
    """32 bits and the 64 bits that begin there."""

    word: int
    pair: int
    neg: bool = False
    abs: bool = False
    select: int = 0


@dataclass
class Lane:
    op: str
    form: str
    fields: dict[str, int]
    a: Operand
    b: Operand
    c: Operand
    ps: tuple[bool, bool, bool]
    immediate: bool  # B or C is one

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


# ---- moves, selects, bits


def prmt(x: Lane) -> int:
    a, control, c = x.a.word, x.b.word, x.c.word
    source = [(c << 32 | a) >> 8 * i & 255 for i in range(8)]
    picks: list[int]
    k = control & 3
    match x["MODE"]:
        case 0:
            picks = [control >> 4 * i & 15 for i in range(4)]
        case 1:
            picks = [k + i for i in range(4)]
        case 2:
            picks = [k - i & 7 for i in range(4)]
        case 3:
            picks = [k] * 4
        case 4:
            picks = [max(i, k) for i in range(4)]
        case 5:
            picks = [min(i, k) for i in range(4)]
        case _:
            picks = [2 * (k & 1) + (i & 1) for i in range(4)]
    out = 0
    for i, pick in enumerate(picks):
        byte = source[pick & 7]
        out |= ((255 if byte & 128 else 0) if pick & 8 else byte) << 8 * i
    return out


def lookup(table: int, bits: tuple[int, int, int]) -> int:
    return table >> (bits[0] * 4 + bits[1] * 2 + bits[2]) & 1


def lop3(x: Lane) -> Result:
    out = 0
    for i in range(32):
        key = (x.a.word >> i & 1, x.b.word >> i & 1, x.c.word >> i & 1)
        out |= lookup(x["LUT"], key) << i
    return out, (out != 0 and x.ps[0]) if x["PAND"] else (out != 0 or x.ps[0]), None


def plop3(x: Lane) -> Result:
    key = (int(x.ps[0]), int(x.ps[1]), int(x.ps[2]))
    first = x["LUT0_HI"] * 8 + x["LUT0_LO"]
    return None, bool(lookup(first, key)), bool(lookup(x["LUT1"], key))


def shf(x: Lane) -> int:
    wide = x.c.word << 32 | x.a.word
    size = 32 if x["TYPE"] >= 2 else 64
    count = x.b.word & size - 1 if x["W"] else min(x.b.word, size)
    if not x["R"]:
        wide <<= count
    elif x["TYPE"] in (0, 2):
        wide = signed(wide, 64) >> count
    else:
        wide >>= count
    return (wide >> 32 if x["HI"] else wide) & M32


def flo(x: Lane) -> Result:
    v = ~x.b.word & M32 if x.b.neg else x.b.word
    if x["SIGNED"] and v >> 31:
        v = ~v & M32
    if not v:
        return M32, None, None
    at = v.bit_length() - 1
    return 31 - at if x["SH"] else at, None, None


def bmsk(x: Lane) -> int:
    wrap = (lambda v: v & 31) if x["W"] else (lambda v: min(v, 32))
    return ((1 << wrap(x.b.word)) - 1) << wrap(x.a.word) & M32


def sgxt(x: Lane) -> int:
    count = x.b.word & 31 if x["W"] else min(x.b.word, 32)
    low = x.a.word & (1 << count) - 1
    return (signed(low, count) if x["SIGNED"] and count else low) & M32


# ---- integers


def iadd3(x: Lane) -> Result:
    total = 0
    for operand in (x.a, x.b, x.c):
        total += ~operand.word & M32 if operand.neg else operand.word
        total += operand.neg and not x["X"]
    if x["X"]:
        total += x.ps[0] + x.ps[1]
    return total & M32, total >> 32 >= 1, total >> 32 >= 2


def product(x: Lane) -> int:
    wide = signed if x["SIGNED"] else lambda v: v
    return wide(x.a.word) * wide(x.b.word)


def imad(x: Lane) -> int:
    c = x.c.word
    if x["X"]:
        c = (~c if x.c.neg else c) + x.ps[0]
    elif x.c.neg:
        c = -c
    return (x.a.word * x.b.word + c) & M32


def imad_wide(x: Lane) -> Result:
    c = ~x.c.pair & M64 if x.c.neg else x.c.pair
    total = (product(x) & M64) + c + (x.ps[0] if x["X"] else x.c.neg)
    return total & M64, bool(total >> 64), None


def imad_hi(x: Lane) -> Result:
    low, carry, _ = imad_wide(x)  # type: ignore[misc]
    return low >> 32, carry, None


def idp(x: Lane) -> int:
    def lanes(word: int, size: int, is_signed: int) -> list[int]:
        parts = [word >> i & (1 << size) - 1 for i in range(0, 32, size)]
        return [signed(p, size) if is_signed else p for p in parts]

    second = lanes(x.b.word, 8, x["B_SIGNED"])
    first = lanes(x.a.word, 16 if x["TWO"] else 8, x["A_SIGNED"])
    if x["HI"]:
        second = second[2:]
    return (x.c.word + sum(p * q for p, q in zip(first, second, strict=False))) & M32


def vabsdiff(x: Lane) -> int:
    wide = signed if x["SIGNED"] else lambda v: v
    return (abs(wide(x.a.word) - wide(x.b.word)) + x.c.word) & M32


def vabsdiff4(x: Lane) -> int:
    out, total = 0, x.c.word
    for i in range(0, 32, 8):
        p, q = x.a.word >> i & 255, x.b.word >> i & 255
        if x["SIGNED"]:
            p, q = signed(p, 8), signed(q, 8)
        out |= abs(p - q) << i
        total += abs(p - q)
    return total & M32 if x["ACC"] else out


def lea(x: Lane) -> Result:
    a = x.a.word
    if x["HI"]:
        high = (M32 if a >> 31 else 0) if x["SX32"] else x.c.word
        a = (high << 32 | a) << x["SHIFT"] >> 32
    else:
        a <<= x["SHIFT"]
    total = 0
    for value, neg in ((a & M32, x.a.neg), (x.b.word, x.b.neg)):
        total += (~value & M32) + (not x["X"]) if neg else value
    if x["X"]:
        total += x.ps[0]
    return total & M32, bool(total >> 32), None


def imnmx(x: Lane) -> int:
    key = signed if x["SIGNED"] else lambda v: v
    return (min if x.ps[0] else max)(x.a.word, x.b.word, key=key)


def combine(how: int, value: bool, other: bool) -> bool:
    return (value and other, value or other, value != other)[how]


def isetp(x: Lane) -> Result:
    a, b = x.a.word, x.b.word
    if x["SIGNED"]:
        a, b = signed(a), signed(b)
    mask = 1 if a < b else 2 if a == b else 4
    r = bool(x["CMP"] & mask)
    if x["EX"]:
        low, equal = x.ps[2], a == b
        known = {1: a < b, 3: a < b, 4: a > b, 6: a > b, 2: False, 5: a != b}
        if x["CMP"] in known:
            r = known[x["CMP"]] or equal and low
    return None, combine(x["BOOL"], r, x.ps[0]), combine(x["BOOL"], not r, x.ps[0])


def i2ip(x: Lane) -> int:
    a, b = (clamp(signed(v), -128, 127) & 255 for v in (x.a.word, x.b.word))
    c = x.c.word >> 16 if x["H1"] else x.c.word & 0xFFFF
    return c << 16 | a << 8 | b


def i2i(x: Lane) -> int:
    low, high = ((0, 255), (-128, 127), (0, 65535), (-32768, 32767))[x["DST"]]
    return clamp(signed(x.b.word), low, high) & M32


# ---- floats


def sign_bits(fmt: f.Format, bits: int, operand: Operand) -> int:
    if operand.abs:
        bits &= ~fmt.sign
    return bits ^ fmt.sign if operand.neg else bits


def source(x: Lane, operand: Operand, fmt: f.Format = f.SINGLE) -> int:
    bits = sign_bits(fmt, operand.pair if fmt is f.DOUBLE else operand.word, operand)
    return f.flush(fmt, bits) if x["FTZ"] and fmt is f.SINGLE else bits


def finish(x: Lane, bits: int, fmt: f.Format = f.SINGLE) -> int:
    if x["FTZ"]:
        bits = f.flush(fmt, bits)
    return f.saturate(fmt, bits) if x["SAT"] else bits


def fadd(x: Lane) -> int:
    return finish(x, f.add(f.SINGLE, source(x, x.a), source(x, x.b), x["RND"]))


SCALES = {1: Fraction(1, 8), 2: Fraction(1, 4), 3: Fraction(1, 2), 4: 1, 5: 2, 6: 4, 7: 8}


def fmul(x: Lane) -> Result:
    """Whether a scaled product that leaves the range on the way is rounded once is not known."""
    a, b = source(x, x.a), source(x, x.b)
    product = f.multiply(f.SINGLE, a, b, x["RND"])
    exponent = product >> 23 & 255
    zero = f.is_zero(f.SINGLE, a) or f.is_zero(f.SINGLE, b)
    if x["SCALE"] != 4 and not 8 < exponent < 246 and not zero:
        return None
    return finish(x, f.multiply(f.SINGLE, a, b, x["RND"], Fraction(SCALES[x["SCALE"]])))


def ffma(x: Lane) -> int:
    return finish(x, f.fma(f.SINGLE, source(x, x.a), source(x, x.b), source(x, x.c), x["RND"]))


def fmnmx(x: Lane) -> int:
    a, b = source(x, x.a), source(x, x.b)
    if f.is_nan(f.SINGLE, a) or f.is_nan(f.SINGLE, b):
        numbers = [v for v in (a, b) if not f.is_nan(f.SINGLE, v)]
        return numbers[0] if numbers else f.SINGLE.nan

    def key(v: int) -> tuple[int, bool]:
        return f.order(f.SINGLE, v), not f.negative(f.SINGLE, v)

    return (min if x.ps[0] else max)(a, b, key=key)


def fsetp(x: Lane, fmt: f.Format = f.SINGLE) -> Result:
    r = f.compare(fmt, x["CMP"], source(x, x.a, fmt), source(x, x.b, fmt))
    if x["CMP"] == 15:
        r = True
    return None, combine(x["BOOL"], r, x.ps[0]), combine(x["BOOL"], not r, x.ps[0])


def fset(x: Lane) -> int:
    return f.one(f.SINGLE) if fsetp(x)[1] else 0  # type: ignore[index]


def fsel(x: Lane) -> int:
    return source(x, x.a if x.ps[0] else x.b)


def fchk(x: Lane) -> Result:
    """The slow path may be taken for more than what needs it."""
    a, b = source(x, x.a), source(x, x.b)
    ea, eb = a >> 23 & 255, b >> 23 & 255
    if ea == 255 or eb in (0, 255):
        return None, True, None
    easy = 60 < ea < 200 and 60 < eb < 200 and abs(ea - eb) < 60
    return None, False if easy else None, None


def dadd(x: Lane) -> int:
    return f.add(f.DOUBLE, source(x, x.a, f.DOUBLE), source(x, x.b, f.DOUBLE), x["RND"])


def dmul(x: Lane) -> int:
    return f.multiply(f.DOUBLE, source(x, x.a, f.DOUBLE), source(x, x.b, f.DOUBLE), x["RND"])


def dfma(x: Lane) -> int:
    a, b, c = (source(x, v, f.DOUBLE) for v in (x.a, x.b, x.c))
    return f.fma(f.DOUBLE, a, b, c, x["RND"])


def dsetp(x: Lane) -> Result:
    if x["CMP"] not in (0, 15):
        return fsetp(x, f.DOUBLE)
    if x["BOOL"] or not x.ps[0]:
        return None, None, None  # no compiler combines these
    a, b = source(x, x.a, f.DOUBLE), source(x, x.b, f.DOUBLE)
    a_nan, b_nan = f.is_nan(f.DOUBLE, a), f.is_nan(f.DOUBLE, b)
    if a_nan or b_nan:
        return None, not a_nan, a_nan and b_nan
    p, q = ((f.order(f.DOUBLE, v), not f.negative(f.DOUBLE, v)) for v in (a, b))
    return None, p < q if x["CMP"] == 0 else p > q, False


# ---- conversions


def f2f(x: Lane) -> int:
    src, dst = f.BY_LOG2[x["SRC"]], f.BY_LOG2[x["DST"]]
    bits = sign_bits(src, x.b.pair & (1 << src.bits) - 1, x.b)
    if x["FTZ"] and src is f.SINGLE:
        bits = f.flush(src, bits)
    out = f.convert(src, dst, bits, x["RND"])
    return f.flush(dst, out) if x["FTZ"] and dst is f.SINGLE else out


def f2i(x: Lane) -> int | None:
    src, size = f.BY_LOG2[x["SRC"]], 8 << x["DST"]
    bits = sign_bits(src, x.b.pair & (1 << src.bits) - 1, x.b)
    if x["FTZ"] and src is f.SINGLE:
        bits = f.flush(src, bits)
    low, high = (-1 << size - 1, (1 << size - 1) - 1) if x["SIGNED"] else (0, (1 << size) - 1)
    out_mask = M64 if size == 64 else M32
    if f.is_nan(src, bits):
        if size < 32:
            return None
        wide = src is f.DOUBLE or size == 64
        return 1 << size - 1 if wide else 0
    if f.is_inf(src, bits):
        return (low if f.negative(src, bits) else high) & out_mask
    return clamp(f.round_integer(f.value(src, bits), x["RND"]), low, high) & out_mask


def i2f(x: Lane) -> int:
    size, dst = 8 << x["SRC"], f.BY_LOG2[x["DST"]]
    v = x.b.pair >> (x.b.select * size if size < 32 else 0) & (1 << size) - 1
    return f.encode(dst, Fraction(signed(v, size) if x["SIGNED"] else v), x["RND"])


def frnd(x: Lane) -> int:
    fmt = f.BY_LOG2[x["SRC"]]
    bits = x.b.pair >> (16 * x.b.select if fmt is f.HALF else 0) & (1 << fmt.bits) - 1
    bits = sign_bits(fmt, bits, x.b)
    if x["FTZ"] and fmt is f.SINGLE:
        bits = f.flush(fmt, bits)
    if f.is_nan(fmt, bits):
        return fmt.nan
    if f.is_inf(fmt, bits):
        return bits
    number = Fraction(f.round_integer(f.value(fmt, bits), x["RND"]))
    return f.encode(fmt, number, f.RN, f.negative(fmt, bits))


# ---- halves: each operand gives two numbers, as singles (which hold every half)


def halves(x: Lane, operand: Operand) -> list[int]:
    low, high = operand.word & 0xFFFF, operand.word >> 16
    if operand.select == 1:  # a float, truncated to a half
        low = f.convert(f.SINGLE, f.HALF, operand.word, f.RZERO)
    pair = {0: (low, high), 3: (high, high)}.get(operand.select, (low, low))
    out = []
    for half in pair:
        bits = sign_bits(f.HALF, half, operand)
        out.append(f.convert(f.HALF, f.SINGLE, f.flush(f.HALF, bits) if x["FTZ"] else bits, f.RN))
    return out


def fma_to(fmt: f.Format, a: int, b: int, c: int) -> int:
    """Of singles, rounded once to the format."""
    exact = f.fma(f.DOUBLE, *(f.convert(f.SINGLE, f.DOUBLE, v, f.RN) for v in (a, b, c)), f.RN)
    if f.is_nan(f.DOUBLE, exact) or f.is_inf(f.DOUBLE, exact) or f.is_zero(f.DOUBLE, exact):
        return f.convert(f.DOUBLE, fmt, exact, f.RN)
    total = f.value(f.SINGLE, a) * f.value(f.SINGLE, b) + f.value(f.SINGLE, c)
    return f.encode(fmt, total, f.RN)


def half_result(x: Lane, parts: list[tuple[int, int, int]]) -> int:
    fmt = f.SINGLE if x["F32"] else f.HALF
    done = [finish(x, fma_to(fmt, *part), fmt) for part in parts]
    return done[0] if x["F32"] else done[1] << 16 | done[0]


def hadd2(x: Lane) -> int:
    one = f.one(f.SINGLE)
    pairs = zip(halves(x, x.a), halves(x, x.b), strict=True)
    return half_result(x, [(a, one, b) for a, b in pairs])


def hmul2(x: Lane) -> int:
    pairs = zip(halves(x, x.a), halves(x, x.b), strict=True)
    # Adding a zero of the product's sign keeps the sign of a zero.
    return half_result(x, [(a, b, (a ^ b) & f.SINGLE.sign) for a, b in pairs])


def hfma2(x: Lane) -> int:
    parts = zip(halves(x, x.a), halves(x, x.b), halves(x, x.c), strict=True)
    return half_result(x, list(parts))


def half_compare(x: Lane) -> list[bool]:
    pairs = zip(halves(x, x.a), halves(x, x.b), strict=True)
    return [x["CMP"] == 15 or f.compare(f.SINGLE, x["CMP"], a, b) for a, b in pairs]


def hset2(x: Lane) -> int:
    true = f.one(f.HALF) if x["BF"] else 0xFFFF
    low, high = (combine(x["BOOL"], r, x.ps[0]) * true for r in half_compare(x))
    return high << 16 | low


def hsetp2(x: Lane) -> Result:
    low, high = half_compare(x)
    if x["H_AND"]:
        low, high = low and high, not (low and high)
    return None, combine(x["BOOL"], low, x.ps[0]), combine(x["BOOL"], high, x.ps[0])


MODELS: dict[str, Callable[[Lane], Result]] = {
    "MOV": lambda x: x.b.word,
    "SEL": lambda x: (x.a if x.ps[0] else x.b).word,
    "FSEL": fsel,
    "PRMT": prmt,
    "LOP3": lop3,
    "PLOP3": plop3,
    "SHF": shf,
    "BREV": lambda x: int(f"{x.b.word:032b}"[::-1], 2),
    "POPC": lambda x: (x.b.word ^ (M32 if x.b.neg else 0)).bit_count(),
    "FLO": flo,
    "IABS": lambda x: abs(signed(x.b.word)),
    "BMSK": bmsk,
    "SGXT": sgxt,
    "IADD3": iadd3,
    "IMAD": imad,
    "IMAD_WIDE": imad_wide,
    "IMAD_HI": imad_hi,
    "IDP": idp,
    "VABSDIFF": vabsdiff,
    "VABSDIFF4": vabsdiff4,
    "LEA": lea,
    "IMNMX": imnmx,
    "ISETP": isetp,
    "I2IP": i2ip,
    "I2I": i2i,
    "FADD": fadd,
    "FMUL": fmul,
    "FFMA": ffma,
    "FMNMX": fmnmx,
    "FSETP": fsetp,
    "FSET": fset,
    "FCHK": fchk,
    "DADD": dadd,
    "DMUL": dmul,
    "DFMA": dfma,
    "DSETP": dsetp,
    "F2F": f2f,
    "F2I": f2i,
    "I2F": i2f,
    "FRND": frnd,
    "HADD2": hadd2,
    "HMUL2": hmul2,
    "HFMA2": hfma2,
    "HSET2": hset2,
    "HSETP2": hsetp2,
}
# The uniform datapath does the same once per warp.
MODELS |= {f"U{name}": model for name, model in MODELS.items()}
WIDE_RESULTS = {"DADD", "DMUL", "DFMA", "IMAD_WIDE", "UIMAD_WIDE"}


def result_bits(op: str, fields: dict[str, int]) -> int:
    if op in WIDE_RESULTS or op in ("F2F", "F2I", "I2F", "FRND") and fields["DST"] == 3:
        return 64
    return 32
