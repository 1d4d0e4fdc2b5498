"""Integer arithmetic in PTX, and conversions between integers."""

from __future__ import annotations

import operator

from ptx import M32, M64, Case, case, signed

TYPES = [sign + str(bits) for bits in (8, 16, 32, 64) for sign in "us"]
REGISTERS = {8: "h", 16: "h", 32: "r", 64: "d"}
COMPARISONS = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def limits(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (0, (1 << bits) - 1) if kind[0] == "u" else (-1 << bits - 1, (1 << bits - 1) - 1)


def wrapped(number: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(number, bits) if kind[0] == "s" else number & (1 << bits) - 1


def saturated(number: int, kind: str) -> int:
    low, high = limits(kind)
    return max(low, min(high, number))


def carries() -> list[Case]:
    def low_product(a: int, b: int, c: int) -> int:
        low = (a * b & M32) + c
        return low & M32 | (a * b >> 32) + c + (low >> 32) << 32

    return [
        case(
            "add.cc.u32 %r4,%r1,%r2; addc.u32 %r5,%r3,%r1; mov.b64 %d10,{%r4,%r5};",
            "u32",
            lambda a, b, c: a + b & M32 | c + a + (a + b >> 32) << 32,
        ),
        case(
            "add.cc.u32 %r4,%r1,%r2; addc.cc.u32 %r5,%r3,%r1; addc.u32 %r10,0,0;",
            "u32",
            lambda a, b, c: c + a + (a + b >> 32) >> 32,
        ),
        case(
            "sub.cc.u32 %r4,%r1,%r2; subc.cc.u32 %r5,%r3,%r1; subc.u32 %r10,0,0;",
            "u32",
            lambda a, b, c: -(c - a - (a < b) < 0),
        ),
        case(
            "sub.cc.u32 %r4,%r1,%r2; subc.u32 %r10,%r3,%r1;",
            "u32",
            lambda a, b, c: c - a - (a < b),
        ),
        case(
            "mad.lo.cc.u32 %r4,%r1,%r2,%r3; madc.hi.u32 %r5,%r1,%r2,%r3; mov.b64 %d10,{%r4,%r5};",
            "u32",
            low_product,
        ),
        case(
            "mad.hi.cc.u32 %r4,%r1,%r2,%r3; addc.u32 %r10,0,0;",
            "u32",
            lambda a, b, c: (a * b >> 32) + c >> 32,
        ),
    ]


def products() -> list[Case]:
    def low24(word: int) -> int:
        return signed(word, 24)

    return [
        case("mad.hi.s32 %r10,%r1,%r2,%r3;", "s32", lambda a, b, c: (a * b >> 32) + c),
        case("mad.hi.u32 %r10,%r1,%r2,%r3;", "u32", lambda a, b, c: (a * b >> 32) + c),
        case("mul.hi.s32 %r10,%r1,%r2;", "s32", lambda a, b, _: a * b >> 32),
        case("mul.hi.s64 %d10,%d1,%d2;", "s64", lambda a, b, _: a * b >> 64),
        case("mul.hi.u64 %d10,%d1,%d2;", "u64", lambda a, b, _: a * b >> 64),
        case("mad.lo.s64 %d10,%d1,%d2,%d3;", "u64", lambda a, b, c: a * b + c),
        case("mad.wide.s32 %d10,%r1,%r2,%d3;", "raw", lambda a, b, c: signed(a) * signed(b) + c),
        case("mad.wide.u32 %d10,%r1,%r2,%d3;", "raw", lambda a, b, c: (a & M32) * (b & M32) + c),
        case("mul.wide.s16 %r10,%h1,%h2;", "s16", lambda a, b, _: a * b),
        case("mul24.lo.s32 %r10,%r1,%r2;", "u32", lambda a, b, _: low24(a) * low24(b)),
        case("mul24.hi.s32 %r10,%r1,%r2;", "u32", lambda a, b, _: low24(a) * low24(b) >> 16),
        case("mul24.hi.u32 %r10,%r1,%r2;", "u24", lambda a, b, _: a * b >> 16),
        case("sad.s32 %r10,%r1,%r2,%r3;", "s32", lambda a, b, c: abs(a - b) + c),
        case("sad.u64 %d10,%d1,%d2,%d3;", "u64", lambda a, b, c: abs(a - b) + c),
        case("abs.s64 %d10,%d1;", "s64", lambda a, b, c: abs(a)),
        case("abs.s16 %h10,%h1;", "s16", lambda a, b, c: abs(a)),
    ]


def divided(a: int, b: int) -> int:
    """Truncated."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def divisions() -> list[Case]:
    def quotient(a: int, b: int, _: int) -> int | None:
        return divided(a, b) if b else None

    def rest(a: int, b: int, _: int) -> int | None:
        return a - b * divided(a, b) if b else None

    return [
        case(f"{name}.{kind} %{r}10,%{r}1,%{r}2;", kind, model)
        for kind, r in (("u32", "r"), ("s32", "r"), ("u16", "h"), ("s16", "h"))
        for name, model in (("div", quotient), ("rem", rest))
    ]


def comparisons() -> list[Case]:
    def comparison(name: str, kind: str, r: str) -> Case:
        compare = COMPARISONS[name]
        code = f"setp.{name}.{kind} %p10,%{r}1,%{r}2;"
        return case(code, kind, lambda a, b, _: int(compare(a, b)))

    kinds = [("u16", "h"), ("s16", "h"), ("u32", "r"), ("s32", "r"), ("u64", "d"), ("s64", "d")]
    found = [comparison(name, kind, r) for kind, r in kinds for name in COMPARISONS]
    for kind, r in kinds:
        found += [
            case(f"min.{kind} %{r}10,%{r}1,%{r}2;", kind, lambda a, b, _: min(a, b)),
            case(f"max.{kind} %{r}10,%{r}1,%{r}2;", kind, lambda a, b, _: max(a, b)),
        ]
    return found


def conversions() -> list[Case]:
    def conversion(target: str, source: str, sat: str) -> Case:
        to, of = REGISTERS[int(target[1:])], REGISTERS[int(source[1:])]
        fit = saturated if sat else wrapped
        code = f"cvt{sat}.{target}.{source} %{to}10,%{of}1;"
        return case(code, source, lambda a, b, c: fit(a, target))

    found = []
    for target in TYPES:
        for source in TYPES:
            found.append(conversion(target, source, ""))
            (low, high), (first, last) = limits(target), limits(source)
            if first < low or high < last:
                found.append(conversion(target, source, ".sat"))
    return found


def byte(word: int, number: int, sign: bool) -> int:
    value = word >> 8 * number & 0xFF
    return signed(value, 8) if sign else value


def half(word: int, number: int, sign: bool) -> int:
    value = word >> 16 * number & 0xFFFF
    return signed(value, 16) if sign else value


def dot_products() -> list[Case]:
    def four(sa: str, sb: str) -> Case:
        def model(a: int, b: int, c: int) -> int:
            return c + sum(byte(a, n, sa == "s") * byte(b, n, sb == "s") for n in range(4))

        return case(f"dp4a.{sa}32.{sb}32 %r10,%r1,%r2,%r3;", "u32", model)

    def two(sa: str, sb: str, first: int) -> Case:
        def model(a: int, b: int, c: int) -> int:
            return c + sum(half(a, n, sa == "s") * byte(b, n + first, sb == "s") for n in range(2))

        which = "hi" if first else "lo"
        return case(f"dp2a.{which}.{sa}32.{sb}32 %r10,%r1,%r2,%r3;", "u32", model)

    signs = [(sa, sb) for sa in "us" for sb in "us"]
    return [four(*both) for both in signs] + [
        two(*both, first) for both in signs for first in (0, 2)
    ]


def video() -> list[Case]:
    """Of bytes and halves: ptxas makes several instructions of each."""

    def picked(name: str) -> Case:
        def model(a: int, b: int, _: int) -> int:
            x, y = byte(a, 1, True), half(b, 1, False)
            sums = {"vadd": x + y, "vsub": x - y, "vabsdiff": abs(x - y)}
            return saturated((sums | {"vmin": min(x, y), "vmax": max(x, y)})[name], "s32")

        return case(f"{name}.s32.s32.u32.sat %r10,%r1.b1,%r2.h1;", "u32", model)

    def distance(sign: str) -> Case:
        def model(a: int, b: int, c: int) -> int:
            pairs = [(byte(a, n, sign == "s"), byte(b, n, sign == "s")) for n in range(4)]
            return c + sum(abs(x - y) for x, y in pairs)

        return case(f"vabsdiff4.{sign}32.{sign}32.{sign}32.add %r10,%r1,%r2,%r3;", "u32", model)

    return [
        *map(picked, ("vadd", "vsub", "vabsdiff", "vmin", "vmax")),
        *map(distance, "us"),
        case(
            "vadd4.s32.s32.s32.sat %r10,%r1,%r2,%r3;",
            "u32",
            lambda a, b, _: sum(
                (saturated(byte(a, n, True) + byte(b, n, True), "s8") & 0xFF) << 8 * n
                for n in range(4)
            ),
        ),
        case(
            "vavrg4.u32.u32.u32 %r10,%r1,%r2,%r3;",
            "u32",
            lambda a, b, _: sum(
                (byte(a, n, False) + byte(b, n, False) + 1 >> 1) << 8 * n for n in range(4)
            ),
        ),
    ]


def choices() -> list[Case]:
    return [
        case("cnot.b32 %r10,%r1;", "u32", lambda a, b, c: int(a == 0)),
        case("slct.s32.s32 %r10,%r1,%r2,%r3;", "s32", lambda a, b, c: a if c >= 0 else b),
        case("sub.s64 %d10,%d1,%d2;", "u64", lambda a, b, _: a - b & M64),
    ]


FAMILIES = {
    "carries": carries,
    "products": products,
    "divisions": divisions,
    "comparisons": comparisons,
    "integer_conversions": conversions,
    "dot_products": dot_products,
    "video": video,
    "choices": choices,
}
