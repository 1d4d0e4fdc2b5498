"""PTX instructions, made machine code by NVIDIA's assembler and executed by the soft GPU.

What PTX says of an instruction is written down by NVIDIA, what SASS says is our reading. So a model
of PTX finds what is wrong in the executor and in the models of its instructions alike.

The code of a case finds its lane's operands in registers 1 to 3 of each kind: %r (32 bits), %d (64),
%f and %g (floats of 32 and 64 bits), %h (16); they are the low bits of three words. It leaves a
result in register 10 of one kind, or in the predicate %p10. Registers from 4 on are free, and so are
64 bytes of zeros at %scratch, which a case has for each block.
"""

from __future__ import annotations

import importlib.util
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sass_float
from elftools.elf.elffile import ELFFile
from sass import LANES, MEMORY, Kernel

BLOCKS = 3  # of one warp: each case is executed with so many times 32 operands
AT_ONCE = 16  # so many cases are one kernel
SCRATCH = 64
WIDTHS = {"r": 32, "d": 64, "f": 32, "g": 64, "h": 16, "p": 1}
M32, M64 = (1 << 32) - 1, (1 << 64) - 1

Lane = tuple[int, int, int]
LaneModel = Callable[[int, int, int], "int | None"]  # None: PTX leaves it open


@dataclass(frozen=True)
class Case:
    code: str
    operands: str  # what the model takes them for: u32, s64, ...; raw: the whole words
    model: Callable[[Sequence[Lane]], Sequence[int | None]]  # of a warp
    any_nan: sass_float.Format | None = None  # where PTX does not say which NaN it is

    @property
    def result(self) -> str:
        return re.findall(r"%([dfghpr])10\b", self.code)[-1]

    def equal(self, got: int, want: int | None) -> bool:
        if want is None:
            return True
        if self.any_nan and sass_float.is_nan(self.any_nan, want):
            return sass_float.is_nan(self.any_nan, got)
        return got == want & (1 << WIDTHS[self.result]) - 1


def case(code: str, operands: str, model: LaneModel, **options: sass_float.Format | None) -> Case:
    """A case in which each lane is for itself."""
    return Case(code, operands, lambda warp: [model(*lane) for lane in warp], **options)


def signed(number: int, bits: int = 32) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


def taken_for(kind: str, word: int) -> int:
    if kind == "raw":
        return word
    bits = int(kind[1:])
    return signed(word, bits) if kind[0] == "s" else word & (1 << bits) - 1


# ---- operands ---------------------------------------------------------------------------------

EDGES_32 = [
    *(0, 1, 2, 31, 32, 33, 63, 64, 65, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF),
    *(0x7FFFFFFF, 0x80000000, M32, M32 - 1, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000),
    *(0x7FC00000, 0x7F800001, 0x80000001, 0x00800000, 0x807FFFFF, 0x007FFFFF, 0x7F7FFFFF),
    *(0x4F000000, 0xCF000000, 0x4B000001, 0x3F000000),
    *(0x3C003C00, 0x7C00FC00, 0x7E000001, 0x03FF8400, 0x80008000, 0x04000400, 0x7BFF7BFF),
]
EDGES_64 = [
    *(0, 1, M64, 1 << 63, (1 << 63) - 1, 1 << 32, M32),
    *(0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000),
    *(0x7FF8000000000000, 0x7FF0000000000001, 0x8000000000000001, 0x0010000000000000),
    *(0x800FFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x43E0000000000000, 0xC3E0000000000000),
    *(0x41DFFFFFFFC00000, 0xC1E0000000200000, 0x3FE0000000000000, 0x4330000000000001),
]


def random_word(source: random.Random, wide: bool) -> int:
    """Often a special value, or a float whose exponent is not far out."""
    bits, edges = (64, EDGES_64) if wide else (32, EDGES_32)
    high = 0 if wide else source.getrandbits(32) << 32
    kind = source.randrange(6)
    if kind < 2:
        return high | source.choice(edges)
    if kind == 2:
        mantissa, exponents = (52, (1000, 1086)) if wide else (23, (100, 160))
        exponent = source.randrange(*exponents)
        low = source.getrandbits(mantissa) | exponent << mantissa
        return high | low | source.getrandbits(1) << bits - 1
    return high | source.getrandbits(source.randrange(1, bits + 1) if kind == 3 else bits)


# ---- kernels ----------------------------------------------------------------------------------

BEGIN = """\
.version 8.0
.target sm_75
.address_size 64
.visible .entry kernel() {{
.reg .b32 %r<32>; .reg .b64 %d<32>; .reg .f32 %f<32>; .reg .f64 %g<32>; .reg .b16 %h<32>;
.reg .pred %p<16>; .reg .b32 %lane, %block; .reg .b64 %in, %out, %scratch;
mov.u32 %lane, %tid.x;
mov.u32 %block, %ctaid.x;
mad.lo.u32 %lane, %block, {lanes}, %lane;
mov.u64 %out, {memory};
mad.wide.u32 %in, %lane, 24, %out;
mad.wide.u32 %out, %lane, 8, %out;
mov.u64 %scratch, {scratch};
mad.wide.u32 %scratch, %block, {scratch_bytes}, %scratch;
ld.global.u64 %d1, [%in];
ld.global.u64 %d2, [%in+8];
ld.global.u64 %d3, [%in+16];
"""
OPERAND = """\
cvt.u32.u64 %r{0}, %d{0};
cvt.u16.u64 %h{0}, %d{0};
mov.b32 %f{0}, %r{0};
mov.b64 %g{0}, %d{0};
"""
STORES = {
    "r": "st.global.u32 [{at}], %r10;",
    "d": "st.global.u64 [{at}], %d10;",
    "f": "st.global.f32 [{at}], %f10;",
    "g": "st.global.f64 [{at}], %g10;",
    "h": "st.global.u16 [{at}], %h10;",
    "p": "selp.u32 %r10, 1, 0, %p10; st.global.u32 [{at}], %r10;",
}
LANES_IN_ALL = BLOCKS * LANES
INPUT_BYTES, OUTPUT_BYTES = 24 * LANES_IN_ALL, 8 * LANES_IN_ALL


def module(cases: Sequence[Case]) -> str:
    scratch = MEMORY + INPUT_BYTES + OUTPUT_BYTES * len(cases)
    stride = SCRATCH * len(cases)
    text = BEGIN.format(lanes=LANES, memory=MEMORY, scratch=scratch, scratch_bytes=stride)
    text += "".join(OPERAND.format(n) for n in (1, 2, 3))
    for number, one in enumerate(cases):
        at = f"%out+{INPUT_BYTES + number * OUTPUT_BYTES}"
        text += f"{{ {one.code}\n{STORES[one.result].format(at=at)} }}\n"
        text += f"add.u64 %scratch, %scratch, {SCRATCH};\n"
    return text + "ret; }\n"


def assembler() -> str | None:
    spec = importlib.util.find_spec("triton")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "backends/nvidia/bin/ptxas"
        if bundled.exists():
            return str(bundled)
    return shutil.which("ptxas")


def assemble(text: str, folder: Path) -> Kernel:
    source, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(text)
    command = [assembler() or "ptxas", "-arch=sm_75", source, "-o", cubin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{text}"
    with cubin.open("rb") as file:
        sections = {section.name: section for section in ELFFile(file).iter_sections()}
        assert ".rel.text.kernel" not in sections, text  # the runner relocates nothing
        literals = sections.get(".nv.constant2.kernel")
        shared = sections.get(".nv.shared.kernel")
        return Kernel(
            [sections[".text.kernel"].data()],
            bytearray(),
            # The kernel has no parameters: what is in their place are its literals, as bank 2.
            params=literals.data() if literals else b"",
            shared=shared["sh_size"] if shared else 0,
            local=4096,
            blocks=BLOCKS,
        )


# ---- a test -----------------------------------------------------------------------------------


def wrong(cases: Sequence[Case], source: random.Random, folder: Path) -> list[str]:
    """Sentences about the cases whose results are not those of their models."""
    wide = [one for one in cases if "64" in one.operands]
    narrow = [one for one in cases if "64" not in one.operands]
    return [
        sentence
        for some in (wide, narrow)
        for first in range(0, len(some), AT_ONCE)
        for sentence in wrong_of(some[first : first + AT_ONCE], source, folder)
    ]


def wrong_of(cases: Sequence[Case], source: random.Random, folder: Path) -> Iterator[str]:
    wide = "64" in cases[0].operands
    words = [random_word(source, wide) for _ in range(3 * LANES_IN_ALL)]
    kernel = assemble(module(cases), folder)
    zeros = (OUTPUT_BYTES + BLOCKS * SCRATCH) * len(cases)
    kernel.memory = bytearray(struct.pack(f"<{len(words)}Q", *words) + bytes(zeros))
    memory, _ = kernel.run(folder / "kernel")
    for number, one in enumerate(cases):
        at = INPUT_BYTES + number * OUTPUT_BYTES
        results = struct.unpack_from(f"<{LANES_IN_ALL}Q", memory, at)
        for block in range(BLOCKS):
            first = block * LANES
            yield from differences(
                one, words[3 * first : 3 * (first + LANES)], results[first : first + LANES]
            )


def differences(one: Case, words: Sequence[int], results: Sequence[int]) -> Iterator[str]:
    """Of a warp: at most one sentence."""
    values = [taken_for(one.operands, word) for word in words]
    lanes: list[Lane] = [
        (values[n], values[n + 1], values[n + 2]) for n in range(0, len(values), 3)
    ]
    for lane, (got, want) in enumerate(zip(results, one.model(lanes), strict=True)):
        if not one.equal(got, want):
            operands = " ".join(f"{word:#x}" for word in words[3 * lane : 3 * lane + 3])
            yield f"[{one.code}] of {operands} in lane {lane} is {got:#x}, not {want:#x}"
            return
