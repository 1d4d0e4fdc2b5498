"""Bits in PTX: counted, moved, extracted and permuted."""

from __future__ import annotations

from collections.abc import Callable

from ptx import M32, Case, case, signed

REGISTERS = {16: "h", 32: "r", 64: "d"}


def found_bit(word: int, bits: int, sign: bool, distance: bool) -> int:
    if sign and word >> bits - 1:
        word ^= (1 << bits) - 1
    at = word.bit_length() - 1
    if at < 0:
        return M32
    return bits - 1 - at if distance else at


def nth_set(word: int, base: int, offset: int) -> int:
    if not offset:
        return base if word >> base & 1 else M32
    to_come = range(base, 32) if offset > 0 else range(base, -1, -1)
    places = [n for n in to_come if word >> n & 1]
    return places[abs(offset) - 1] if len(places) >= abs(offset) else M32


def counts() -> list[Case]:
    def found(bits: int, sign: str, how: str) -> Case:
        def model(a: int, b: int, c: int) -> int:
            return found_bit(a, bits, sign == "s", bool(how))

        return case(f"bfind{how}.{sign}{bits} %r10,%{REGISTERS[bits]}1;", f"u{bits}", model)

    return [
        *(
            found(bits, sign, how)
            for bits in (32, 64)
            for sign in "us"
            for how in ("", ".shiftamt")
        ),
        case("popc.b64 %r10,%d1;", "u64", lambda a, b, c: bin(a).count("1")),
        case("clz.b64 %r10,%d1;", "u64", lambda a, b, c: 64 - a.bit_length()),
        case("clz.b32 %r10,%r1;", "u32", lambda a, b, c: 32 - a.bit_length()),
        case("brev.b64 %d10,%d1;", "u64", lambda a, b, c: int(f"{a:064b}"[::-1], 2)),
        case(
            "and.b32 %r4,%r2,31; and.b32 %r5,%r3,31; sub.u32 %r5,%r5,16; fns.b32 %r10,%r1,%r4,%r5;",
            "u32",
            lambda a, b, c: nth_set(a, b & 31, (c & 31) - 16),
        ),
    ]


def extracted(word: int, first: int, count: int, bits: int, sign: bool) -> int:
    first, count, word = first & 0xFF, count & 0xFF, word & (1 << bits) - 1
    fill = sign and count > 0 and word >> min(first + count - 1, bits - 1) & 1
    here = min(count, max(bits - first, 0))
    value = word >> first & (1 << here) - 1 if here else 0
    return value | (-1 << here if fill else 0)


def inserted(field: int, word: int, first: int, count: int, bits: int) -> int:
    here = min(count & 0xFF, max(bits - (first & 0xFF), 0))
    mask = (1 << here) - 1 << (first & 0xFF)
    return word & ~mask | field << (first & 0xFF) & mask


def fields() -> list[Case]:
    def by_registers(bits: int, sign: str) -> Case:
        r = REGISTERS[bits]
        code = f"bfe.{sign}{bits} %{r}10,%{r}1,%r4,%r5;"
        return case(
            f"and.b32 %r4,%r2,127; and.b32 %r5,%r3,127; {code}",
            f"u{bits}",
            lambda a, b, c: extracted(a, b & 127, c & 127, bits, sign == "s"),
        )

    def by_numbers(bits: int, sign: str, first: int, count: int) -> Case:
        r = REGISTERS[bits]
        code = f"bfe.{sign}{bits} %{r}10,%{r}1,{first},{count};"
        return case(code, f"u{bits}", lambda a, b, c: extracted(a, first, count, bits, sign == "s"))

    def insertion(bits: int) -> Case:
        r = REGISTERS[bits]
        code = f"bfi.b{bits} %{r}10,%{r}1,%{r}2,%r4,%r5;"
        return case(
            f"and.b32 %r4,%r3,127; shr.u32 %r5,%r3,8; and.b32 %r5,%r5,127; {code}",
            f"u{bits}",
            lambda a, b, c: inserted(a, b, c & 127, c >> 8 & 127, bits),
        )

    kinds = [(bits, sign) for bits in (32, 64) for sign in "us"]
    numbers = [(5, 9), (0, 8), (31, 1), (20, 0), (33, 20)]
    return [
        *(by_registers(*kind) for kind in kinds),
        *(by_numbers(*kind, *pair) for kind in kinds for pair in numbers if pair[0] < kind[0]),
        *map(insertion, (32, 64)),
    ]


def permuted(a: int, b: int, choice: int) -> int:
    result = 0
    for n in range(4):
        one = choice >> 4 * n & 15
        value = (b << 32 | a) >> 8 * (one & 7) & 0xFF
        result |= (0xFF * (value >> 7) if one & 8 else value) << 8 * n
    return result


PLACES: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda n, k: k + n,
    "b4e": lambda n, k: k - n & 7,
    "rc8": lambda n, k: k,
    "ecl": lambda n, k: max(n, k),
    "ecr": lambda n, k: min(n, k),
    "rc16": lambda n, k: 2 * (k & 1) + (n & 1),
}


def permutations() -> list[Case]:
    def special(mode: str) -> Case:
        place = PLACES[mode]

        def model(a: int, b: int, c: int) -> int:
            return permuted(a, b, sum(place(n, c & 3) << 4 * n for n in range(4)))

        return case(f"prmt.b32.{mode} %r10,%r1,%r2,%r3;", "u32", model)

    def number(choice: int) -> Case:
        code = f"prmt.b32 %r10,%r1,%r2,{choice};"
        return case(code, "u32", lambda a, b, c: permuted(a, b, choice))

    return [
        *map(special, PLACES),
        *map(number, (0x5410, 0x7632, 0x1234, 0xBA98, 0x8AC0)),
        case("prmt.b32 %r10,%r1,%r2,%r3;", "u32", permuted),
    ]


def shifted(word: int, by: int, name: str, bits: int) -> int:
    by = min(by, bits)
    if name == "shl.b":
        return word << by
    return (signed(word, bits) if name == "shr.s" else word) >> by


def shifts() -> list[Case]:
    def funnel(to: str, mode: str) -> Case:
        def model(a: int, b: int, c: int) -> int:
            by, both = c & 31 if mode == "wrap" else min(c, 32), b << 32 | a
            return both << by >> 32 if to == "l" else both >> by

        return case(f"shf.{to}.{mode}.b32 %r10,%r1,%r2,%r3;", "u32", model)

    def by_register(name: str, bits: int) -> Case:
        r = REGISTERS[bits]
        code = f"{name}{bits} %{r}10,%{r}1,%r4;"
        if bits == 64:  # or hardly one is small enough
            code = f"and.b32 %r4,%r2,127; {code}"
            return case(code, "u64", lambda a, b, _: shifted(a, b & 127, name, bits))

        def model(a: int, b: int, _: int) -> int:
            return shifted(a & (1 << bits) - 1, b, name, bits)

        return case(code.replace("%r4", "%r2"), "u32", model)

    def by_number(name: str, bits: int, by: int) -> Case:
        r = REGISTERS[bits]
        code = f"{name}{bits} %{r}10,%{r}1,{by};"
        return case(code, f"u{bits}", lambda a, b, c: shifted(a, by, name, bits))

    kinds = [(name, bits) for name in ("shl.b", "shr.u", "shr.s") for bits in (16, 32, 64)]
    distances = (1, 7, 15, 16, 31, 32, 33, 63, 64, 65)
    return [
        *(funnel(to, mode) for to in "lr" for mode in ("wrap", "clamp")),
        *(by_register(*kind) for kind in kinds),
        *(by_number(*kind, by) for kind in kinds for by in distances),
    ]


def extensions() -> list[Case]:
    def extension(sign: str, mode: str) -> Case:
        def model(a: int, b: int, _: int) -> int:
            count = b & 31 if mode == "wrap" else min(b, 32)
            if not count:
                return 0
            return signed(a, count) if sign == "s" else a & (1 << count) - 1

        return case(f"szext.{mode}.{sign}32 %r10,%r1,%r2;", "u32", model)

    def mask(mode: str) -> Case:
        def model(a: int, b: int, _: int) -> int:
            first, count = (a & 31, b & 31) if mode == "wrap" else (min(a, 32), min(b, 32))
            return (1 << count) - 1 << first

        return case(f"bmsk.{mode}.b32 %r10,%r1,%r2;", "u32", model)

    modes = ("clamp", "wrap")
    return [extension(sign, mode) for sign in "us" for mode in modes] + [
        mask(mode) for mode in modes
    ]


FAMILIES = {
    "counts": counts,
    "fields": fields,
    "permutations": permutations,
    "shifts": shifts,
    "extensions": extensions,
}
