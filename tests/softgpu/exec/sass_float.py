"""IEEE arithmetic in exact fractions: the reference of the float instructions.

Nothing here computes with floats; a number is its bits and a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

RN, RM, RP, RZERO = 0, 1, 2, 3


@dataclass(frozen=True)
class Format:
    bits: int
    mantissa: int
    nan: int

    @property
    def exponent_max(self) -> int:
        return (1 << self.bits - 1 - self.mantissa) - 1

    @property
    def bias(self) -> int:
        return self.exponent_max >> 1

    @property
    def inf(self) -> int:
        return self.exponent_max << self.mantissa

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1


HALF = Format(16, 10, 0x7FFF)
SINGLE = Format(32, 23, 0x7FFFFFFF)
DOUBLE = Format(64, 52, 0x7FFFFFFFFFFFFFFF)
BY_LOG2 = {1: HALF, 2: SINGLE, 3: DOUBLE}


def is_nan(fmt: Format, bits: int) -> bool:
    return bits & ~fmt.sign > fmt.inf


def is_inf(fmt: Format, bits: int) -> bool:
    return bits & ~fmt.sign == fmt.inf


def is_zero(fmt: Format, bits: int) -> bool:
    return bits & ~fmt.sign == 0


def negative(fmt: Format, bits: int) -> bool:
    return bool(bits & fmt.sign)


def flush(fmt: Format, bits: int) -> int:
    return bits if bits & fmt.inf else bits & fmt.sign


def value(fmt: Format, bits: int) -> Fraction:
    """Of a finite number."""
    exponent = bits >> fmt.mantissa & fmt.exponent_max
    fraction = bits & (1 << fmt.mantissa) - 1
    if exponent:
        fraction |= 1 << fmt.mantissa
    power = max(exponent, 1) - fmt.bias - fmt.mantissa
    magnitude = Fraction(fraction << power) if power >= 0 else Fraction(fraction, 1 << -power)
    return -magnitude if negative(fmt, bits) else magnitude


def round_integer(number: Fraction, mode: int) -> int:
    """To an integer; modes as in the rounding field."""
    down = number.numerator // number.denominator
    rest = number - down
    if not rest:
        return down
    if mode == RN:
        up = rest > Fraction(1, 2) or rest == Fraction(1, 2) and down & 1
    else:
        up = mode == RP or mode == RZERO and number < 0
    return down + bool(up)


def encode(fmt: Format, number: Fraction, mode: int, zero_sign: bool = False) -> int:
    """The bits of an exact number, rounded once."""
    if not number:
        return fmt.sign if zero_sign else 0
    sign = fmt.sign if number < 0 else 0
    magnitude = abs(number)
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** power:
        power -= 1
    step = max(power, 1 - fmt.bias) - fmt.mantissa
    directed = {RM: RP, RP: RM}.get(mode, mode) if sign else mode
    count = round_integer(magnitude / Fraction(2) ** step, directed)
    # A count that grows into the next exponent carries into it by itself.
    exponent = step + fmt.mantissa + fmt.bias
    bits = count if count < 1 << fmt.mantissa else count + (exponent - 1 << fmt.mantissa)
    if bits >= fmt.inf:
        largest = directed in (RM, RZERO)
        bits = fmt.inf - 1 if largest else fmt.inf
    return sign | bits


def add(fmt: Format, a: int, b: int, mode: int) -> int:
    return fma(fmt, a, one(fmt), b, mode)


def one(fmt: Format) -> int:
    return fmt.bias << fmt.mantissa


def multiply(fmt: Format, a: int, b: int, mode: int, scale: Fraction = Fraction(1)) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b):
        return fmt.nan
    sign = (a ^ b) & fmt.sign
    if is_inf(fmt, a) or is_inf(fmt, b):
        return fmt.nan if is_zero(fmt, a) or is_zero(fmt, b) else sign | fmt.inf
    return encode(fmt, value(fmt, a) * value(fmt, b) * scale, mode, bool(sign))


def fma(fmt: Format, a: int, b: int, c: int, mode: int) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b) or is_nan(fmt, c):
        return fmt.nan
    sign = (a ^ b) & fmt.sign
    infinite = is_inf(fmt, a) or is_inf(fmt, b)
    if infinite and (is_zero(fmt, a) or is_zero(fmt, b)):
        return fmt.nan
    if infinite:
        return fmt.nan if is_inf(fmt, c) and (c ^ sign) & fmt.sign else sign | fmt.inf
    if is_inf(fmt, c):
        return c
    exact_zero = is_zero(fmt, a) or is_zero(fmt, b)
    if exact_zero and is_zero(fmt, c):
        same = not (c ^ sign) & fmt.sign
        return sign if same else (fmt.sign if mode == RM else 0)
    total = value(fmt, a) * value(fmt, b) + value(fmt, c)
    return encode(fmt, total, mode, mode == RM)


def convert(source: Format, target: Format, bits: int, mode: int) -> int:
    if is_nan(source, bits):
        return target.nan
    sign = target.sign if negative(source, bits) else 0
    if is_inf(source, bits):
        return sign | target.inf
    return encode(target, value(source, bits), mode, bool(sign))


def saturate(fmt: Format, bits: int) -> int:
    if is_nan(fmt, bits) or negative(fmt, bits):
        return 0
    return min(bits, one(fmt))


def compare(fmt: Format, condition: int, a: int, b: int) -> bool:
    """Conditions of FSETP: LT 1, EQ 2, GT 4, unordered 8."""
    if is_nan(fmt, a) or is_nan(fmt, b):
        return bool(condition & 8)
    x, y = order(fmt, a), order(fmt, b)
    return bool(condition & (1 if x < y else 2 if x == y else 4))


def order(fmt: Format, bits: int) -> int:
    """Numbers in their order; the zeros are equal."""
    magnitude = bits & ~fmt.sign
    return -magnitude if negative(fmt, bits) else magnitude


def square_root(number: Fraction, digits: int = 60) -> Fraction:
    scaled = (number.numerator << 2 * digits) // number.denominator
    return Fraction(isqrt(scaled), 1 << digits)
