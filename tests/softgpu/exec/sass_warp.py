"""Kernels in which lanes, warps and blocks meet, and jumps of all kinds.

Each case gives code and what R32..R35 of every lane must hold afterwards. The code finds R4..R28,
UR4..UR19, P0..P4 and UP0..UP4 of a State, and its lane number in R0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sass import EXIT, LANES, PARAMS, PT, RZ, Const, Kernel, asm
from sass_arithmetic import INPUT_BYTES, OUT, PRED_INPUT, RD, State, prelude
from sass_model import M32, signed

Expected = Callable[[State, int], list[int | None]]


@dataclass
class Case:
    name: str
    code: list[bytes | Here]
    expected: Expected
    shared: int = 4096
    threads: int = LANES


def results(case: Case, state: State, path: Path) -> list[tuple[int, ...]]:
    """R32..R35 of each lane."""
    begin = prelude(state) + [
        asm("R2P_imm", a=PRED_INPUT, b=0x7F),
        *[asm("MOV_I", rd=RD + i, b=0) for i in range(4)],
    ]
    end = asm("STG_reg", a=OUT, b=RD, OFFSET=INPUT_BYTES, E=1, SIZE=6, ORDER=1, SCOPE=3)
    memory = bytearray(INPUT_BYTES + case.threads * 16)
    for i, r in enumerate(range(4, 29)):
        struct.pack_into(f"<{LANES}I", memory, i * 128, *state.registers[r])
    code = [*begin, *relocated(case.code, len(begin)), end, EXIT]
    kernel = Kernel(code, memory, state.params(), case.shared, threads=case.threads)
    result, _ = kernel.run(path)
    return list(struct.iter_unpack("<4I", result[INPUT_BYTES:]))


def run(case: Case, state: State, path: Path) -> list[str]:
    wrong = []
    for lane, got in enumerate(results(case, state, path)):
        want = case.expected(state, lane)
        if any(w is not None and w != g for g, w in zip(got, want, strict=False)):
            wrong.append(f"lane [{lane}] has {[hex(g) for g in got]}, want {want}")
    return wrong


@dataclass
class Here:
    """An instruction that depends on its place: the number of the one before the code."""

    make: Callable[[int], bytes]


def relocated(code: list[bytes | Here], first: int) -> list[bytes]:
    return [word.make(first) if isinstance(word, Here) else word for word in code]


def jump(words: int) -> int:
    """OFFSET of a relative jump over so many instructions."""
    return 4 * words


# ---- lanes that read each other


def shuffled(mode: int, lane: int, b: int, c: int) -> tuple[int, bool]:
    limit_mask, segment = c & 31, c >> 8 & 31
    b &= 31
    last = lane & segment | limit_mask & ~segment
    source = {0: lane & segment | b & ~segment, 1: lane - b, 2: lane + b, 3: lane ^ b}[mode]
    inside = source >= last if mode == 1 else source <= last
    return (source if inside else lane), inside


def shuffles() -> list[Case]:
    cases = []
    for mode in range(4):
        for form, b, c in (
            ("rr", 6, 8),
            ("ri", 6, 0x181F),
            ("ir", 5, 8),
            ("ii", 3, 0x1C03),
            ("ii", 1, 0x001F if mode != 1 else 0),
        ):
            code = [
                asm(f"SHFL_{form}", rd=RD, a=4, b=b, c=c, pd0=5, MODE=mode),
                asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(5, True)),
            ]

            def expected(
                state: State, lane: int, mode: int = mode, form: str = form, b: int = b, c: int = c
            ) -> list[int | None]:
                select = state.register(b, lane) if form[0] == "r" else b
                bounds = state.register(c, lane) if form[1] == "r" else c
                source, inside = shuffled(mode, lane, select, bounds)
                return [state.register(4, source), int(inside)]

            cases.append(Case(f"SHFL {mode} {form}", code, expected))
    return cases


def votes() -> list[Case]:
    cases = []
    for mode in range(3):
        for guard in ((PT, False), (1, False)):

            def expected(
                state: State, lane: int, mode: int = mode, guard: tuple[int, bool] = guard
            ) -> list[int | None]:
                executing = M32 if guard[0] == PT else state.predicates[guard[0]]
                ballot = state.predicates[0] & executing
                if not executing >> lane & 1:
                    return [0, 0]
                truth = (ballot == executing, ballot != 0, ballot in (0, executing))[mode]
                return [ballot, int(truth)]

            common = {"guard": guard, "MODE": mode, "ps0": (0, False), "pd0": (5, False)}
            truth = asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(5, True), guard=guard)
            cases.append(
                Case(f"VOTE {mode}", [asm("VOTE_plain", rd=RD, **common), truth], expected)
            )
            uniform = [
                asm("VOTEU_plain", rd=24, **common),
                asm("MOV_U", rd=RD, b=24, guard=guard),
                asm("PLOP3_plain", pd0=5, ps2=5, PS2_UNIFORM=1, LUT0_LO=2, LUT0_HI=0x15),
                truth,
            ]
            cases.append(Case(f"VOTEU {mode}", uniform, expected))
    return cases


def matches() -> list[Case]:
    few = asm("LOP3_RIR", rd=40, a=4, b=3, c=RZ, LUT=0xC0, ps0=(PT, True))
    zero = asm("MOV_I", rd=41, b=7)

    def any_of(state: State, lane: int) -> list[int | None]:
        key = state.register(4, lane) & 3
        return [sum(1 << i for i in range(LANES) if state.register(4, i) & 3 == key)]

    cases = []
    for wide in (0, 1):
        match = asm("MATCH_any", rd=RD, a=40, U64=wide)
        cases.append(Case(f"MATCH any {wide}", [few, zero, match], any_of))
        for operand, equal in ((40, False), (41, True)):
            code = [
                few,
                zero,
                asm("MOV_I", rd=42, b=9),
                asm("MATCH_all", rd=RD, a=operand, U64=wide, pd0=5),
                asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(5, True)),
            ]
            want = [M32 if equal else 0, int(equal)]
            cases.append(Case(f"MATCH all {wide}", code, lambda _s, _l, want=want: want))
    return cases


def half_at(words: list[int], row: int, column: int) -> int:
    """Of an 8x8 matrix of halves, two of which are in each of 32 words."""
    return words[row * 4 + column // 2] >> 16 * (column & 1) & 0xFFFF


def transposed(words: list[int], lane: int) -> int:
    row, column = lane // 4, 2 * (lane % 4)
    return half_at(words, column, row) | half_at(words, column + 1, row) << 16


def matrices() -> list[Case]:
    def moved(state: State, lane: int) -> list[int | None]:
        return [transposed(state.registers[4], lane)]

    cases = [Case("MOVM", [asm("MOVM_reg", rd=RD, a=4)], moved)]
    # Each matrix is what one register holds in the warp, rows of 16 bytes one after the other.
    fill = [asm("IMAD_RIR", rd=40, a=0, b=4, c=RZ), asm("IMAD_RIR", rd=41, a=0, b=16, c=RZ)]
    fill += [asm("STS_reg", a=40, b=4 + k, OFFSET=128 * k, SIZE=4) for k in range(4)]
    for count in range(3):
        for trans in (0, 1):
            for form in ("reg", "ur"):
                address = {"c": 24, "OFFSET": -64 & 0xFFFFFF} if form == "ur" else {}
                load = asm(f"LDSM_{form}", rd=RD, a=41, COUNT=count, TRANS=trans, **address)
                setup = [asm("UMOV_I", rd=24, b=64)] if form == "ur" else []

                def expected(
                    state: State, lane: int, count: int = count, trans: int = trans
                ) -> list[int | None]:
                    found = [state.registers[4 + k] for k in range(1 << count)]
                    return [transposed(w, lane) if trans else w[lane] for w in found]

                cases.append(Case(f"LDSM {count} {form}", [*fill, *setup, load], expected))
    return cases


# ---- uniform values and constants


def uniforms() -> list[Case]:
    cases = [
        Case(
            "R2UR",
            [asm("R2UR_reg", rd=24, a=4), asm("MOV_U", rd=RD, b=24)],
            lambda state, _: [state.register(4, 0)],
        ),
        Case(
            "S2UR",
            [asm("S2UR_sr", rd=24, SR=37), asm("MOV_U", rd=RD, b=24)],
            lambda _s, _l: [0],
        ),
    ]
    for size in range(6):
        for form, index in (("LDC_reg", 40), ("ULDC_imm", None), ("ULDC_ur", 24)):
            at = 8 + 8 * (size % 3)
            uniform = form != "LDC_reg"
            setup = [asm("MOV_I", rd=40, b=8), asm("UMOV_I", rd=24, b=8)]
            const = Const(0, PARAMS + at - (8 if index else 0))
            word = asm_constant(form, 26 if uniform else RD, const, index, size)
            moved = [asm("MOV_U", rd=RD, b=26), asm("MOV_U", rd=RD + 1, b=27)] if uniform else []

            def expected(
                state: State, _lane: int, size: int = size, at: int = at
            ) -> list[int | None]:
                data = state.params()[at:]
                width = (1, 1, 2, 2, 4, 8)[size]
                value = int.from_bytes(data[:width], "little")
                if size in (1, 3):
                    value = signed(value, 8 * width) & M32
                return [value & M32, value >> 32 if size == 5 else None]

            cases.append(Case(f"{form} {size}", [*setup, word, *moved], expected))
    return cases


def asm_constant(form: str, rd: int, const: Const, index: int | None, size: int) -> bytes:
    word = int.from_bytes(asm(form, rd=rd, b=const, SIZE=size), "little")
    if index is not None:
        word = word & ~(0x3F << 24) | index << 24
    return word.to_bytes(16, "little")


def spaces() -> list[Case]:
    """QSPC: global, local, shared addresses; the windows lie where bank 0 says."""
    cases = []
    for space, (low, high) in enumerate(((2, 3), (42, 43), (44, 45))):
        load = [
            asm("MOV_C", rd=42, b=Const(0, 0x20)),
            asm("MOV_C", rd=43, b=Const(0, 0x24)),
            asm("MOV_C", rd=44, b=Const(0, 0x18)),
            asm("MOV_C", rd=45, b=Const(0, 0x1C)),
        ]
        for asked in range(3):
            want = [int(space == asked)] * 2
            code = [
                *load,
                asm("QSPC_reg", a=low, E=1, SPACE=asked, pd0=5, OFFSET=16),
                asm("SEL_RI", rd=RD, a=RZ, b=1, ps0=(5, True)),
                asm("R2UR_reg", rd=24, a=low),
                asm("R2UR_reg", rd=25, a=high),
                asm("MOV_I", rd=40, b=16),
                asm("QSPC_ur", a=40, c=24, E=1, SPACE=asked, pd0=5),
                asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(5, True)),
            ]
            cases.append(Case(f"QSPC {asked}", code, lambda _s, _l, want=want: want))
    return cases


# ---- control flow


def set_to(value: int, register: int = RD) -> bytes:
    return asm("MOV_I", rd=register, b=value)


def constant(*want: int | None) -> Expected:
    return lambda _state, _lane: list(want)


def jumps() -> list[Case]:
    """Each jumps over `set_to(1)`, so R32 keeps 2."""

    def at(first: int, index: int) -> int:
        return (first + index) * 16

    def target(form: str, **extra: int) -> list[bytes | Here]:
        """R40:R41 (UR24:UR25) hold where instruction 6 of the case lies."""
        offset = {"OFFSET": 0}

        def here(first: int) -> bytes:
            base = at(first, 5)
            relative = form not in ("CALL_ABS_reg", "RET_ABS_reg")
            fields = dict(offset) if form != "CALL_ABS_reg" else {}
            if relative:
                fields["OFFSET"] = -base // 4 & (1 << 48) - 1
            return asm(form, **{**fields, **extra})

        return [
            set_to(2),
            Here(lambda first: asm("MOV_I", rd=40, b=at(first, 6))),
            set_to(0, 41),
            asm("R2UR_reg", rd=24, a=40),
            Here(here) if form != "BRXU_ur" else asm("UMOV_I", rd=25, b=0),
            set_to(1) if form != "BRXU_ur" else Here(lambda first: brxu(at(first, 6))),
        ]

    def brxu(after: int) -> bytes:
        return asm("BRXU_ur", a=24, OFFSET=-after // 4 & (1 << 48) - 1)

    cases = [
        Case(form, target(form, a=40), constant(2))
        for form in ("BRX_reg", "RET_reg", "RET_ABS_reg", "CALL_REL_reg", "CALL_ABS_reg")
    ]
    brxu_code = target("BRXU_ur")
    brxu_code[1] = Here(lambda first: asm("MOV_I", rd=40, b=at(first, 7)))
    cases.append(Case("BRXU", [*brxu_code, set_to(1)], constant(2)))
    for kind in range(4):
        jumps_over = [set_to(2), asm("BRA_plain", KIND=kind, OFFSET=jump(1)), set_to(1)]
        # .DIV is taken by a warp that has diverged, which this one has not.
        cases.append(Case(f"BRA {kind}", jumps_over, constant(1 if kind == 2 else 2)))
    call = [set_to(2), asm("CALL_REL_plain", OFFSET=jump(1)), set_to(1)]
    cases.append(Case("CALL.REL", call, constant(2)))
    absolute = [
        set_to(2),
        Here(lambda first: asm("CALL_ABS_plain", ADDRESS=at(first, 3) // 4)),
        set_to(1),
    ]
    cases.append(Case("CALL.ABS", absolute, constant(2)))
    lepc = [
        asm("LEPC_plain", rd=RD),
        Here(lambda first: asm("IADD3_RIR", rd=RD, a=RD, b=-at(first, 0) & M32, c=RZ)),
    ]
    cases.append(Case("LEPC", lepc, constant(0, 0)))
    return cases


def divergence() -> list[Case]:
    def even_first(_state: State, lane: int) -> list[int | None]:
        return [M32, 0x55555555 if lane % 2 == 0 else 0xAAAAAAAA]

    odd = [
        asm("LOP3_RIR", rd=40, a=0, b=1, c=RZ, LUT=0xC0, ps0=(PT, True)),
        asm("ISETP_RI", a=40, b=0, CMP=5, pd0=5, SIGNED=1),
    ]
    inside = asm("VOTE_plain", rd=RD + 1, MODE=1)
    after = asm("VOTE_plain", rd=RD, MODE=1)
    split = [
        *odd,
        asm("BSSY_plain", BREG=3, OFFSET=jump(5)),
        asm("BRA_plain", OFFSET=jump(2), guard=(5, False)),
        inside,
        asm("BRA_plain", OFFSET=jump(1)),
        inside,
    ]
    cases = [Case("BSSY", [*split, asm("BSYNC_plain", BREG=3), after], even_first)]
    through_register = [
        asm("BMOV_to_reg", rd=44, BREG=3, CLEAR=1),
        asm("BMOV_to_breg", BREG=5, b=44),
        asm("BSYNC_plain", BREG=5),
    ]
    cases.append(Case("BMOV", [*split, *through_register, after], even_first))
    # Odd lanes leave the barrier: the even ones do not wait for them.
    leaves = [
        *odd,
        asm("BSSY_plain", BREG=2, OFFSET=jump(4)),
        asm("BREAK_plain", BREG=2, guard=(5, False)),
        asm("BRA_plain", OFFSET=jump(2), guard=(5, False)),
        asm("BSYNC_plain", BREG=2),
        inside,
        asm("WARPSYNC_imm", b=M32),
        after,
    ]

    def broken(_state: State, lane: int) -> list[int | None]:
        return [M32, 0 if lane % 2 else 0x55555555]

    cases.append(Case("BREAK", leaves, broken))
    for form, operand in (("WARPSYNC_imm", M32), ("WARPSYNC_reg", 45)):
        code = [set_to(M32, 45), *split, asm(form, b=operand), after]
        cases.append(Case(form, code, even_first))
    diverged = [
        *odd,
        asm("BRA_plain", OFFSET=jump(5), guard=(5, False)),
        asm("BRA_plain", KIND=2, OFFSET=jump(1)),
        set_to(1),
        asm("BRA_plain", KIND=3, OFFSET=jump(1)),
        set_to(3, RD + 1),
        asm("NOP_plain"),
    ]

    def apart(_state: State, lane: int) -> list[int | None]:
        return [0, 0 if lane % 2 else 3]

    cases.append(Case("BRA.DIV diverged", [*diverged, asm("WARPSYNC_imm", b=M32)], apart))
    return cases


def without_effect() -> list[Case]:
    code = [
        asm("NOP_plain"),
        asm("ERRBAR_plain"),
        asm("CCTL_all"),
        asm("DEPBAR_plain", LE=1, SB=1, COUNT=2),
        asm("PMTRIG_imm", b=1),
        asm("YIELD_plain"),
        asm("NANOSLEEP_imm", b=10),
        asm("NANOSLEEP_imm", b=10, WARP=1),
        asm("NANOSLEEP_reg", b=0, WARP=0),
        asm("NANOSLEEP_reg", b=0, WARP=1),
    ]
    code += [asm("MEMBAR_plain", SCOPE=s, KIND=k) for s in (0, 1, 2, 3, 5) for k in range(3)]
    code += [asm("CCTL_reg", a=OUT, E=1, OP=op, OFFSET32=INPUT_BYTES) for op in range(3)]
    return [Case("hints", [*code, set_to(5)], constant(5, 0))]


# ---- barriers of a block of two warps


def barriers() -> list[Case]:
    both = 9 | 64 << 16  # barrier 9, 64 threads
    forms = {
        "BAR_imm": {"ID": 1},
        "BAR_id": {"b": 47},
        "BAR_count": {"ID": 2, "b": 46},
        "BAR_both": {"b": 46},
    }
    setup = [
        set_to(both, 46),
        set_to(7, 47),
        asm("IMAD_RIR", rd=40, a=0, b=4, c=RZ),
        asm("LOP3_RIR", rd=41, a=40, b=128, c=RZ, LUT=0x3C, ps0=(PT, True)),
        asm("STS_reg", a=40, b=0, SIZE=4),
    ]
    other = asm("LDS_reg", rd=RD, a=41, SIZE=4)
    cases = []
    for form, operands in forms.items():
        for defer in (0, 1):
            sync = asm(form, MODE=0, DEFER_BLOCKING=defer, **operands)
            cases.append(
                Case(form, [*setup, sync, other], lambda _s, lane: [lane ^ 32], threads=64)
            )
        for red in range(3):
            code = [
                *setup,
                asm("ISETP_RI", a=0, b=40, CMP=1, pd0=5),
                asm(form, MODE=2, RED=red, ps0=(5, False), **operands),
                asm("B2R_plain", rd=RD, pd0=6),
                asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(6, True)),
            ]
            want = ((40, 1), (None, 0), (None, 1))[red]
            cases.append(Case(f"{form} RED", code, constant(*want), threads=64))
        defer_red = asm(form, MODE=2, RED=2, DEFER_BLOCKING=1, ps0=(PT, False), **operands)
        code = [*setup, defer_red, asm("B2R_plain", rd=RZ, pd0=6)]
        code.append(asm("SEL_RI", rd=RD + 1, a=RZ, b=1, ps0=(6, True)))
        cases.append(Case(f"{form} RED.DEFER", code, constant(None, 1), threads=64))
    # Warp 0 says that its values are there and goes on; warp 1 waits for them.
    for form, operands in {
        "BAR_arv": {"ID": 3, "COUNT": 64},
        "BAR_arv_count": {"ID": 3, "b": 46},
        "BAR_arv_id": {"b": 47, "COUNT": 64},
        "BAR_arv_both": {"b": 46},
    }.items():
        barrier = 3 if "ID" in operands else 7 if operands["b"] == 47 else 9
        code = [
            *setup,
            asm("ISETP_RI", a=0, b=32, CMP=1, pd0=5),
            asm(form, guard=(5, False), **operands),
            asm("BAR_imm", ID=barrier, COUNT=64, guard=(5, True)),
            other,
        ]

        def expected(_state: State, lane: int) -> list[int | None]:
            return [lane - 32 if lane >= 32 else None]

        cases.append(Case(form, code, expected, threads=64))
    return cases


Group = Callable[[], list[Case]]
GROUPS: tuple[Group, ...] = (
    shuffles,
    votes,
    matches,
    matrices,
    uniforms,
    spaces,
    jumps,
    divergence,
    without_effect,
    barriers,
)
