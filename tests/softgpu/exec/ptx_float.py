"""Float arithmetic and comparisons in PTX. The models are exact fractions (sass_float.py)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import sass_float as exact
from ptx import M32, Case, case
from sass_float import DOUBLE, HALF, RN, RZERO, SINGLE, Format

ROUNDINGS = {"rn": RN, "rm": exact.RM, "rp": exact.RP, "rz": RZERO}
KINDS = {"f16": (HALF, "h", "u16"), "f32": (SINGLE, "f", "u32"), "f64": (DOUBLE, "g", "u64")}
CONDITIONS = [
    "lt",
    "eq",
    "le",
    "gt",
    "ne",
    "ge",
    "num",
    "nan",
    "ltu",
    "equ",
    "leu",
    "gtu",
    "neu",
    "geu",
]  # from 1, as FSETP has them
Operation = Callable[[Format, int, int, int, int], int]  # format, operands, rounding

OPERATIONS: dict[str, tuple[int, Operation]] = {  # the number of operands
    "add": (2, lambda fmt, a, b, c, mode: exact.add(fmt, a, b, mode)),
    "sub": (2, lambda fmt, a, b, c, mode: exact.add(fmt, a, b ^ fmt.sign, mode)),
    "mul": (2, lambda fmt, a, b, c, mode: exact.multiply(fmt, a, b, mode)),
    "fma": (3, exact.fma),
}


def finish(fmt: Format, bits: int, ftz: str, sat: str) -> int:
    flushed = exact.flush(fmt, bits) if ftz else bits
    return exact.saturate(fmt, flushed) if sat else flushed


def taken(fmt: Format, bits: int, ftz: str) -> int:
    bits &= (1 << fmt.bits) - 1
    return exact.flush(fmt, bits) if ftz else bits


def operation(name: str, kind: str, rounding: str, ftz: str = "", sat: str = "") -> Case:
    fmt, r, operands = KINDS[kind]
    count, perform = OPERATIONS[name]
    registers = ",".join(f"%{r}{n + 1}" for n in range(count))

    def model(a: int, b: int, c: int) -> int:
        result = perform(fmt, *(taken(fmt, x, ftz) for x in (a, b, c)), ROUNDINGS[rounding])
        return finish(fmt, result, ftz, sat)

    code = f"{name}.{rounding}{ftz}{sat}.{kind} %{r}10,{registers};"
    return case(code, operands, model, any_nan=DOUBLE if kind == "f64" else None)


def pair_operation(name: str, ftz: str, sat: str) -> Case:
    count, perform = OPERATIONS[name]
    registers = ",".join(f"%r{n + 1}" for n in range(count))

    def half(a: int, b: int, c: int) -> int:
        return finish(HALF, perform(HALF, *(taken(HALF, x, ftz) for x in (a, b, c)), RN), ftz, sat)

    def model(a: int, b: int, c: int) -> int:
        return half(a, b, c) | half(a >> 16, b >> 16, c >> 16) << 16

    return case(f"{name}.rn{ftz}{sat}.f16x2 %r10,{registers};", "u32", model)


MODIFIERS = [(ftz, sat) for ftz in ("", ".ftz") for sat in ("", ".sat")]


def single() -> list[Case]:
    return [
        operation(name, "f32", rounding, *both)
        for name in OPERATIONS
        for rounding in ROUNDINGS
        for both in MODIFIERS
    ]


def double() -> list[Case]:
    return [operation(name, "f64", rounding) for name in OPERATIONS for rounding in ROUNDINGS]


def half() -> list[Case]:
    return [
        *(operation(name, "f16", "rn", *both) for name in OPERATIONS for both in MODIFIERS),
        *(pair_operation(name, *both) for name in OPERATIONS for both in MODIFIERS),
    ]


def of_a_float() -> list[Case]:
    """A half is made of a float for one instruction: ptxas lets that one do it (.F32)."""

    def narrowed(word: int) -> int:
        return exact.convert(SINGLE, HALF, word & M32, RZERO)

    def arithmetic(name: str) -> Case:
        perform = OPERATIONS[name][1]
        return case(
            f"cvt.rz.f16.f32 %h4,%f1; {name}.f16 %h10,%h4,%h2;",
            "u32",
            lambda a, b, c: perform(HALF, narrowed(a), b & 0xFFFF, 0, RN),
        )

    def comparison(condition: int) -> Case:
        return case(
            f"cvt.rz.f16.f32 %h4,%f1; setp.{CONDITIONS[condition - 1]}.f16 %p10,%h4,%h2;",
            "u32",
            lambda a, b, c: int(exact.compare(HALF, condition, narrowed(a), b & 0xFFFF)),
        )

    return [*map(arithmetic, ("add", "sub", "mul")), *map(comparison, range(1, 15))]


def extreme(fmt: Format, a: int, b: int, largest: bool) -> int:
    """-0 is less than +0; a NaN loses."""
    if exact.is_nan(fmt, a) or exact.is_nan(fmt, b):
        numbers = [x for x in (a, b) if not exact.is_nan(fmt, x)]
        return numbers[0] if numbers else fmt.nan
    both = sorted((a, b), key=lambda x: (exact.order(fmt, x), not exact.negative(fmt, x)))
    return both[largest]


def extremes() -> list[Case]:
    def plain(name: str, kind: str, ftz: str) -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, _: int) -> int:
            return extreme(fmt, taken(fmt, a, ftz), taken(fmt, b, ftz), name == "max")

        code = f"{name}{ftz}.{kind} %{r}10,%{r}1,%{r}2;"
        return case(code, operands, model, any_nan=DOUBLE if kind == "f64" else None)

    def zeros(name: str) -> Case:
        sign = DOUBLE.sign
        return case(
            f"and.b64 %d4,%d1,{sign}; and.b64 %d5,%d2,{sign}; mov.b64 %g4,%d4; mov.b64 %g5,%d5; "
            f"{name}.f64 %g10,%g4,%g5;",
            "u64",
            lambda a, b, _: extreme(DOUBLE, a & sign, b & sign, name == "max"),
        )

    kinds = [("f32", ""), ("f32", ".ftz"), ("f64", "")]
    names = ("min", "max")
    return [plain(name, *kind) for name in names for kind in kinds] + [zeros(n) for n in names]


def comparisons() -> list[Case]:
    def plain(kind: str, condition: int, ftz: str = "") -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, _: int) -> int:
            return exact.compare(fmt, condition, taken(fmt, a, ftz), taken(fmt, b, ftz))

        code = f"setp.{CONDITIONS[condition - 1]}{ftz}.{kind} %p10,%{r}1,%{r}2;"
        return case(code, operands, model)

    def combined(condition: int) -> Case:
        def model(a: int, b: int, c: int) -> int:
            less, other = exact.compare(SINGLE, condition, a, b), c <= a
            return (less ^ other) + 2 * ((not less) ^ other)

        return case(
            f"setp.gt.u32 %p2,%r3,%r1; setp.{CONDITIONS[condition - 1]}.xor.f32 %p3|%p4,%f1,%f2,!%p2;"
            "selp.u32 %r4,1,0,%p3; selp.u32 %r5,2,0,%p4; add.u32 %r10,%r4,%r5;",
            "u32",
            model,
        )

    def pairs(condition: int) -> Case:
        def model(a: int, b: int, _: int) -> int:
            both = (
                exact.compare(HALF, condition, a >> n & 0xFFFF, b >> n & 0xFFFF) for n in (0, 16)
            )
            return sum(0x3C00 * met << 16 * n for n, met in enumerate(both))

        return case(f"set.{CONDITIONS[condition - 1]}.f16x2.f16x2 %r10,%r1,%r2;", "u32", model)

    every = range(1, 15)
    found = [plain(kind, condition) for kind in KINDS for condition in every]
    found += [plain("f32", condition, ".ftz") for condition in every]
    return found + [one(condition) for one in (combined, pairs) for condition in every]


def quotient(fmt: Format, a: int, b: int, mode: int) -> int:
    sign = (a ^ b) & fmt.sign
    if exact.is_nan(fmt, a) or exact.is_nan(fmt, b):
        return fmt.nan
    if exact.is_inf(fmt, a):
        return fmt.nan if exact.is_inf(fmt, b) else sign | fmt.inf
    if exact.is_inf(fmt, b):
        return sign
    if exact.is_zero(fmt, b):
        return fmt.nan if exact.is_zero(fmt, a) else sign | fmt.inf
    return exact.encode(fmt, exact.value(fmt, a) / exact.value(fmt, b), mode, bool(sign))


def root(fmt: Format, a: int, mode: int) -> int:
    if exact.is_nan(fmt, a) or exact.is_zero(fmt, a):
        return a
    if exact.negative(fmt, a):
        return fmt.nan
    if exact.is_inf(fmt, a):
        return a
    number, digits = exact.value(fmt, a), 700  # a double has up to 537 zeros behind the point
    found = exact.square_root(number, digits)
    inexact = found * found != number
    return exact.encode(fmt, found + inexact * Fraction(1, 1 << digits + 1), mode)


def quotients() -> list[Case]:
    """ptxas makes many instructions of these."""

    def division(kind: str, rounding: str, ftz: str) -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, _: int) -> int:
            found = quotient(fmt, taken(fmt, a, ftz), taken(fmt, b, ftz), ROUNDINGS[rounding])
            return taken(fmt, found, ftz)

        code = f"div.{rounding}{ftz}.{kind} %{r}10,%{r}1,%{r}2;"
        return case(code, operands, model, any_nan=fmt)

    def inverse(kind: str, rounding: str, ftz: str) -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, _: int) -> int:
            found = quotient(fmt, exact.one(fmt), taken(fmt, a, ftz), ROUNDINGS[rounding])
            return taken(fmt, found, ftz)

        return case(f"rcp.{rounding}{ftz}.{kind} %{r}10,%{r}1;", operands, model, any_nan=fmt)

    def square_root(kind: str, rounding: str, ftz: str) -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, _: int) -> int:
            return taken(fmt, root(fmt, taken(fmt, a, ftz), ROUNDINGS[rounding]), ftz)

        return case(f"sqrt.{rounding}{ftz}.{kind} %{r}10,%{r}1;", operands, model, any_nan=fmt)

    kinds = [("f32", ""), ("f32", ".ftz"), ("f64", "")]
    return [
        one(kind, rounding, ftz)
        for one in (division, inverse, square_root)
        for kind, ftz in kinds
        for rounding in ROUNDINGS
    ]


FAMILIES = {
    "single": single,
    "double": double,
    "half": half,
    "of_a_float": of_a_float,
    "extremes": extremes,
    "float_comparisons": comparisons,
    "quotients": quotients,
}
