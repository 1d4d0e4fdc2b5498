"""Conversions from and to floats in PTX."""

from __future__ import annotations

from fractions import Fraction

import sass_float as exact
from ptx import Case, case
from ptx_float import KINDS, ROUNDINGS, finish, taken
from ptx_integer import REGISTERS, TYPES, limits
from sass_float import DOUBLE, RN

TO_INTEGER = {"rni": exact.RN, "rmi": exact.RM, "rpi": exact.RP, "rzi": exact.RZERO}
FLUSHES = ("", ".ftz")


def between_floats() -> list[Case]:
    def conversion(target: str, source: str, rounding: str, ftz: str, sat: str) -> Case:
        (to, t, _), (of, s, operands) = KINDS[target], KINDS[source]

        def model(a: int, b: int, c: int) -> int:
            flushes_it = ftz if source == "f32" else ""
            mode = ROUNDINGS.get(rounding[1:], RN)
            result = exact.convert(of, to, taken(of, a, flushes_it), mode)
            return finish(to, result, ftz if target == "f32" else "", sat)

        code = f"cvt{rounding}{ftz}{sat}.{target}.{source} %{t}10,%{s}1;"
        return case(code, operands, model, any_nan=to)

    found = []
    for target, (to, _, _) in KINDS.items():
        for source, (of, _, _) in KINDS.items():
            roundings = [f".{name}" for name in ROUNDINGS] if to.bits < of.bits else [""]
            # ptxas forgets a .ftz of a float that becomes a half with another rounding than to
            # nearest, so nobody knows what it means.
            flushes = [""] if "f32" not in (target, source) or target == "f16" else FLUSHES
            found += [
                conversion(target, source, rounding, ftz, sat)
                for rounding in roundings
                for ftz in flushes
                for sat in ("", ".sat")
                if target != source
            ]
    return found


def to_whole_floats() -> list[Case]:
    def rounding(kind: str, name: str, ftz: str, sat: str) -> Case:
        fmt, r, operands = KINDS[kind]

        def model(a: int, b: int, c: int) -> int:
            a = taken(fmt, a, ftz)
            if exact.is_nan(fmt, a):
                return 0 if sat else fmt.nan
            if not exact.is_inf(fmt, a):
                whole = exact.round_integer(exact.value(fmt, a), TO_INTEGER[name])
                a = exact.encode(fmt, Fraction(whole), RN, exact.negative(fmt, a))
            return exact.saturate(fmt, a) if sat else a

        code = f"cvt.{name}{ftz}{sat}.{kind}.{kind} %{r}10,%{r}1;"
        return case(code, operands, model, any_nan=fmt)

    return [
        rounding(kind, name, ftz, sat)
        for kind in KINDS
        for name in TO_INTEGER
        for ftz in (FLUSHES if kind == "f32" else ("",))
        for sat in ("", ".sat")
    ]


def to_integers() -> list[Case]:
    def conversion(kind: str, target: str, rounding: str, ftz: str) -> Case:
        fmt, r, operands = KINDS[kind]
        bits, (low, high) = int(target[1:]), limits(target)

        def model(a: int, b: int, c: int) -> int | None:
            a = taken(fmt, a, ftz)
            if exact.is_nan(fmt, a):
                if bits < 32:
                    return None
                return 1 << bits - 1 if fmt is DOUBLE or bits == 64 else 0
            if exact.is_inf(fmt, a):
                return low if exact.negative(fmt, a) else high
            whole = exact.round_integer(exact.value(fmt, a), TO_INTEGER[rounding])
            return max(low, min(high, whole))

        code = f"cvt.{rounding}{ftz}.{target}.{kind} %{REGISTERS[bits]}10,%{r}1;"
        return case(code, operands, model)

    return [
        conversion(kind, target, rounding, ftz)
        for kind in KINDS
        for target in TYPES
        for rounding in TO_INTEGER
        for ftz in (FLUSHES if kind == "f32" else ("",))
    ]


def of_integers() -> list[Case]:
    def conversion(kind: str, source: str, rounding: str) -> Case:
        fmt, r, _ = KINDS[kind]
        code = f"cvt.{rounding}.{kind}.{source} %{r}10,%{REGISTERS[int(source[1:])]}1;"
        mode = ROUNDINGS[rounding]
        return case(code, source, lambda a, b, c: exact.encode(fmt, Fraction(a), mode))

    return [
        conversion(kind, source, rounding)
        for kind in KINDS
        for source in TYPES
        for rounding in ROUNDINGS
    ]


FAMILIES = {
    "between_floats": between_floats,
    "to_whole_floats": to_whole_floats,
    "to_integers": to_integers,
    "of_integers": of_integers,
}
