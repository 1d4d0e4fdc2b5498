"""What the lanes of a warp do together in PTX: shuffles, votes, barriers and atomics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sass_float as exact
from ptx import M32, Case, Lane, case, signed
from sass import LANES
from sass_float import DOUBLE, HALF, RN, SINGLE, Format

Results = Sequence["int | None"]


def shuffled(mode: str, lane: int, by: int, bounds: int) -> tuple[int, bool]:
    """The lane that is read, and whether it is within the bounds."""
    by, segment, clamp = by & 31, bounds >> 8 & 31, bounds & 31
    low = lane & segment
    high = low | clamp & ~segment
    read = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | by & ~segment & 31}
    within = read[mode] >= high if mode == "up" else read[mode] <= high
    return (read[mode] if within else lane), within


def shuffles() -> list[Case]:
    def by_number(mode: str, bounds: int) -> Case:
        def model(warp: Sequence[Lane]) -> Results:
            return [warp[shuffled(mode, lane, 5, bounds)[0]][0] for lane in range(LANES)]

        return Case(f"shfl.sync.{mode}.b32 %r10|%p1,%r1,5,{bounds},-1;", "u32", model)

    def predicate(mode: str, bounds: int) -> Case:
        def model(warp: Sequence[Lane]) -> Results:
            return [shuffled(mode, lane, warp[lane][1], bounds)[1] for lane in range(LANES)]

        return Case(f"shfl.sync.{mode}.b32 %r4|%p10,%r1,%r2,{bounds},-1;", "u32", model)

    def by_registers(mode: str) -> Case:
        def model(warp: Sequence[Lane]) -> Results:
            return [warp[shuffled(mode, n, by, c)[0]][0] for n, (_, by, c) in enumerate(warp)]

        return Case(f"shfl.sync.{mode}.b32 %r10|%p1,%r1,%r2,%r3,-1;", "u32", model)

    modes = ("up", "down", "bfly", "idx")
    bounds = (0x1F, 0, 0x101F, 0x1C1F, 0x1803, 0x0F07)
    both = [(mode, some) for mode in modes for some in bounds]
    return [one(*pair) for one in (by_number, predicate) for pair in both] + [
        by_registers(mode) for mode in modes
    ]


def same(model: Callable[[Sequence[bool]], int]) -> Callable[[Sequence[Lane]], Results]:
    """All lanes have what the model makes of the lanes in which a is less than b."""
    return lambda warp: [model([a < b for a, b, _ in warp])] * LANES


def mask(bits: Sequence[bool]) -> int:
    return sum(bit << n for n, bit in enumerate(bits))


def votes() -> list[Case]:
    def vote(code: str, model: Callable[[Sequence[bool]], int]) -> Case:
        return Case(f"setp.lt.u32 %p2,%r1,%r2; {code}", "u32", same(model))

    def matches(bits: int) -> Callable[[Sequence[Lane]], Results]:
        return lambda warp: [
            mask([(one[0] & bits) == (other[0] & bits) for other in warp]) for one in warp
        ]

    return [
        vote("vote.sync.all.pred %p10,%p2,-1;", all),
        vote("vote.sync.any.pred %p10,%p2,-1;", any),
        vote("vote.sync.uni.pred %p10,%p2,-1;", lambda bits: all(bits) or not any(bits)),
        vote("vote.sync.ballot.b32 %r10,!%p2,-1;", lambda bits: M32 ^ mask(bits)),
        vote("bar.red.popc.u32 %r10,0,%p2;", sum),
        vote("bar.red.and.pred %p10,0,!%p2;", lambda bits: not any(bits)),
        vote("bar.red.or.pred %p10,3,32,%p2;", any),
        Case("and.b32 %r4,%r1,3; match.any.sync.b32 %r10,%r4,-1;", "u32", matches(3)),
        Case(
            "and.b64 %d4,%d1,0x100000001; match.any.sync.b64 %r10,%d4,-1;",
            "u64",
            matches(0x100000001),
        ),
        case("mov.u32 %r4,5; match.all.sync.b32 %r10|%p1,%r4,-1;", "u32", lambda a, b, c: M32),
        case("match.all.sync.b32 %r10|%p1,%r1,-1;", "u32", lambda a, b, c: 0),
    ]


Step = Callable[[int, Lane], int]  # what is in memory, and the lane that comes


def ascending(step: Step) -> Callable[[Sequence[Lane]], Results]:
    """Each lane gets what it found: lanes come in ascending order, which PTX leaves open."""

    def model(warp: Sequence[Lane]) -> Results:
        word, found = 0, []
        for lane in warp:
            found.append(word)
            word = step(word, lane)
        return found

    return model


SHARED = (
    ".shared .align 8 .b64 word; mov.u32 %r20,word; mov.u64 %d20,0; st.shared.u64 [%r20],%d20; "
    "bar.sync 0;"
)
GENERIC = (
    ".shared .align 8 .b64 word; mov.u64 %d20,word; cvta.shared.u64 %d21,%d20; mov.u64 %d22,0; "
    "st.u64 [%d21],%d22; bar.sync 0;"
)


def atomic(
    space: str, what: str, register: str, operands: str, step: Step, before: str = ""
) -> Case:
    """`register`: of the operand; several are written with commas."""
    first = {"global": "", "shared": SHARED, "generic": GENERIC}[space]
    at = {"global": ".global", "shared": ".shared", "generic": ""}[space]
    address = {"global": "%scratch", "shared": "%r20", "generic": "%d21"}[space]
    code = f"{before}{first} atom{at}.{what} %{register[1]}10,[{address}],{register};"
    return Case(code, operands, ascending(step))


def extreme_in_a_loop(what: str, largest: bool) -> Case:
    """ptxas makes a loop of it, in which lanes come as they like: only the last word is known."""
    kind = what[-3:]

    def model(warp: Sequence[Lane]) -> Results:
        return [(max if largest else min)(0, *(a for a, _, _ in warp))] * LANES

    code = f"atom.shared.{what} %d11,[%r20],%d1; bar.warp.sync -1; ld.shared.u64 %d10,[%r20];"
    return Case(f"{SHARED} {code}", kind, model)


def bitwise(bits: int, space: str) -> list[Case]:
    r, word = {32: "r", 64: "d"}[bits], (1 << bits) - 1
    steps: dict[str, Step] = {
        f"add.u{bits}": lambda old, lane: old + lane[0] & word,
        f"exch.b{bits}": lambda old, lane: lane[0],
        f"and.b{bits}": lambda old, lane: old & lane[0],
        f"or.b{bits}": lambda old, lane: old | lane[0],
        f"xor.b{bits}": lambda old, lane: old ^ lane[0],
        f"min.u{bits}": lambda old, lane: min(old, lane[0]),
        f"max.u{bits}": lambda old, lane: max(old, lane[0]),
        f"min.s{bits}": lambda old, lane: min(signed(old, bits), signed(lane[0], bits)) & word,
        f"max.s{bits}": lambda old, lane: max(signed(old, bits), signed(lane[0], bits)) & word,
    }
    found = [
        extreme_in_a_loop(what, what.startswith("max"))
        if space == "shared" and bits == 64 and what.startswith("m")
        else atomic(space, what, f"%{r}1", f"u{bits}", step)
        for what, step in steps.items()
    ]
    narrow = f"and.b{bits} %{r}4,%{r}1,1; and.b{bits} %{r}5,%{r}2,1; "
    swap = atomic(
        *(space, f"cas.b{bits}", f"%{r}4,%{r}5", f"u{bits}"),
        lambda old, lane: lane[1] & 1 if old == lane[0] & 1 else old,
        narrow,
    )
    return [*found, swap]


def counters(space: str) -> list[Case]:
    narrow = "and.b32 %r4,%r1,15; "

    def up(old: int, lane: Lane) -> int:
        return 0 if old >= lane[0] & 15 else old + 1

    def down(old: int, lane: Lane) -> int:
        return lane[0] & 15 if old == 0 or old > lane[0] & 15 else old - 1

    return [
        atomic(space, "inc.u32", "%r4", "u32", up, narrow),
        atomic(space, "dec.u32", "%r4", "u32", down, narrow),
    ]


def integer_atomics() -> list[Case]:
    spaces = ("global", "shared", "generic")
    return [
        one
        for space in spaces
        for some in (bitwise(32, space), bitwise(64, space), counters(space))
        for one in some
    ]


def sums(fmt: Format, flushed: bool) -> Step:
    def step(old: int, lane: Lane) -> int:
        word = lane[0] & (1 << fmt.bits) - 1
        if not flushed:
            return exact.add(fmt, old, word, RN)
        return exact.flush(fmt, exact.add(fmt, exact.flush(fmt, old), exact.flush(fmt, word), RN))

    return step


def pair_sum(old: int, lane: Lane) -> int:
    low, high = (exact.add(HALF, old >> n & 0xFFFF, lane[0] >> n & 0xFFFF, RN) for n in (0, 16))
    return low | high << 16


def float_atomics() -> list[Case]:
    """The first NaN stays, so few lanes would be compared: operands are made finite."""
    single = "and.b32 %r4,%r1,0xbfffffff; mov.b32 %f4,%r4; "
    double = "and.b64 %d4,%d1,0xbfffffffffffffff; mov.b64 %g4,%d4; "
    halves = "and.b32 %r4,%r1,0xbfffbfff; cvt.u16.u32 %h4,%r4; "

    def finite(step: Step, bits: int) -> Step:
        return lambda old, lane: step(old, (lane[0] & bits, 0, 0))

    of_single, of_double, of_halves = 0xBFFFFFFF, 0xBFFFFFFFFFFFFFFF, 0xBFFFBFFF
    flushed, plain = (finite(sums(SINGLE, ftz), of_single) for ftz in (True, False))
    return [
        atomic("global", "add.f32", "%f4", "u32", flushed, single),
        atomic("shared", "add.f32", "%f4", "u32", plain, single),
        *(
            one
            for space in ("global", "shared")
            for one in (
                atomic(
                    space, "add.f64", "%g4", "u64", finite(sums(DOUBLE, False), of_double), double
                ),
                atomic(space, "add.noftz.f16x2", "%r4", "u32", finite(pair_sum, of_halves), halves),
                atomic(
                    *(space, "add.noftz.f16", "%h4", "u32"),
                    finite(sums(HALF, False), of_halves),
                    halves,
                ),
            )
        ),
    ]


def transposed(warp: Sequence[Lane]) -> Results:
    """movmatrix: row n is in lanes 4n to 4n+3, two halves each."""
    rows = [
        [warp[4 * row + n // 2][0] >> 16 * (n & 1) & 0xFFFF for n in range(8)] for row in range(8)
    ]
    return [
        rows[2 * (lane % 4)][lane // 4] | rows[2 * (lane % 4) + 1][lane // 4] << 16
        for lane in range(LANES)
    ]


def memory() -> list[Case]:
    return [
        case(
            ".local .align 8 .b8 place[128]; mov.u64 %d20,place; and.b32 %r4,%r2,15; "
            "mul.wide.u32 %d21,%r4,8; add.u64 %d22,%d20,%d21; st.local.u64 [%d22],%d1; "
            "ld.local.u64 %d10,[%d22];",
            "u64",
            lambda a, b, c: a,
        ),
        case(
            ".shared .align 8 .b64 word; mov.u64 %d20,word; cvta.shared.u64 %d21,%d20; "
            "isspacep.shared %p2,%d21; isspacep.global %p3,%d21; isspacep.local %p4,%scratch; "
            "isspacep.global %p5,%scratch; selp.u32 %r4,1,0,%p2; selp.u32 %r5,2,0,%p3; "
            "selp.u32 %r6,4,0,%p4; selp.u32 %r7,8,0,%p5; or.b32 %r4,%r4,%r5; or.b32 %r6,%r6,%r7; "
            "or.b32 %r10,%r4,%r6;",
            "u32",
            lambda a, b, c: 9,
        ),
        Case("movmatrix.sync.aligned.m8n8.trans.b16 %r10,%r1;", "u32", transposed),
    ]


FAMILIES = {
    "shuffles": shuffles,
    "votes": votes,
    "integer_atomics": integer_atomics,
    "float_atomics": float_atomics,
    "memory": memory,
}
