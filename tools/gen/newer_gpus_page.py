"""Makes docs/research/newer-gpus.md from newer-gpus.json beside it (tools/check/newer_sass.py)."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/research/newer-gpus.md"
ISA = ROOT / "softgpu/isa/sm75.isa"
STATEMENT = re.compile(r"^([A-Z][A-Z0-9]*) +\w*=", re.MULTILINE)
GPUS = {
    "80": "A100",
    "86": "A10, RTX 30",
    "90": "H100, H200",
    "100": "B200",
    "120": "RTX 50",
}
# Names of the vendor's disassembler, by what a soft GPU would have to have for them.
GROUPS = {
    "memory with a descriptor": "LD LDG ST STG ATOM ATOMG RED REDG LDL STL LDS STS",
    "matrix products of other shapes and types": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA",
    "bfloat16, and packed numbers": "HFMA2 HADD2 HMUL2 HSETP2 HSET2 HMNMX2 F2FP F2F I2FP I2IP",
    "copies that run beside (cp.async)": "LDGSTS LDGDEPBAR DEPBAR ARRIVES",
    "tensor copies and barriers in memory": (
        "UTMALDG UTMASTG UTMAREDG UTMACCTL UTMAPF UTMACMDFLUSH UBLKCP SYNCS FENCE STSM LDSM ELECT"
    ),
    "clusters": "UCGABAR_ARV UCGABAR_WAIT CGAERRBAR ENDCOLLECTIVE MAPA",
    "tensor memory": "LDTM STTM UTCBAR UTCATOMSWS UTCHMMA UTCQMMA UTCCP",
}
HEAD = """# A soft GPU of a newer generation

The soft GPU executes code for sm_70 to sm_75. This page says how much of the code that PyTorch's
wheel has for newer GPUs it would take as it is, and what it lacks. Made by
`python tools/gen/newer_gpus_page.py` from what this prints:

```sh
.venv/bin/python tools/check/newer_sass.py 80             # all cubins
.venv/bin/python tools/check/newer_sass.py --every 8 90   # each eighth
```

Each distinct instruction is decoded as one of sm_75. It counts as *alike* if it prints as the
vendor's disassembler prints it for its own architecture. A kernel is *whole* if all its
instructions are alike.

That an instruction prints alike does not prove that it does the same. Its encoding is the same, and
the vendor's names have kept their meaning so far. From sm_100 on the disassembler prints some
instructions otherwise that are encoded alike (`IADD3`). So those numbers are lower bounds.

## How much is alike
"""
TAIL = """
## What it would take

* **Decoder.** A table of instructions for each generation. Loads and stores have the same opcodes
  as before with other fields: a uniform register names a descriptor, which can be left out.
* **Executor.** The rows of the table above. Most of what sm_80 needs is no new arithmetic: the
  memory forms, packing of two floats, bfloat16. New are products of 16x8x16, also of bfloat16 and
  TF32.
* **Device.** Its properties, more shared memory for a block (163 KB instead of 64), and which code
  of a fat binary is chosen. All of it follows one number.
* **Libraries.** cuBLAS and its like are computed on the host, whatever the generation.
* **Programs get other kernels.** Triton and PyTorch choose by the generation: flash attention,
  bfloat16 in Triton, larger tiles. Each of these is a path that no test runs today.

**sm_80 is near, sm_90 and newer are farther.** The list for sm_80 has 18 names, and with the first
four nearly three of four kernels are whole. With sm_90 come tensor copies, barriers in memory and
clusters. A kernel uses them together. Few kernels of the wheel do: those for large matrix products
and attention.
"""


def table(rows: list[tuple[Any, ...]]) -> list[str]:
    """Return the lines of a table; the first row is its head."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return [lines[0], "|---" + "|--:" * (len(rows[0]) - 1) + "|", *lines[1:]]


def percent(part: int, whole: int) -> str:
    """Return a share; only all is 100 %."""
    share = 100 * part / whole
    return f"{min(share, 99.9):.1f} %" if part < whole else "100 %"


def group_of(name: str) -> str:
    """Return what a soft GPU would have to have for a name."""
    return next((group for group, names in GROUPS.items() if name in names.split()), "others")


def overview(found: Mapping[str, Any]) -> list[str]:
    """Return one row for each architecture."""
    head = (
        "code for",
        "cubins",
        "kernels",
        "instructions",
        "alike",
        "whole kernels",
        "names lacking",
    )
    rows: list[tuple[Any, ...]] = [head]
    for arch, seen in found.items():
        each = "" if seen["every"] == 1 else f", each {seen['every']}th"
        rows.append(
            (
                f"sm_{arch} ({GPUS[arch]})",
                f"{seen['cubins']}{each}",
                seen["kernels"],
                f"{seen['instructions']:,}",
                percent(seen["alike"], seen["instructions"]),
                percent(seen["whole"], seen["kernels"]),
                len(seen["lacking"]),
            )
        )
    return table(rows)


def groups(found: Mapping[str, Any]) -> list[str]:
    """Return how much of the code needs each group."""
    names = [*GROUPS, "others"]
    rows: list[tuple[Any, ...]] = [("what is lacking", *(f"sm_{arch}" for arch in found))]
    for group in names:
        cells = []
        for seen in found.values():
            times = sum(n for name, n, *_ in seen["lacking"] if group_of(name) == group)
            cells.append(f"{100 * times / seen['instructions']:.2f} %" if times else "")
        rows.append((group, *cells))
    return table(rows)


def order(arch: str, seen: Mapping[str, Any], known: set[str]) -> list[str]:
    """Return the names in the order in which to add them."""
    rows: list[tuple[Any, ...]] = [("name", "times", "kernels that have it", "whole with it")]
    for name, times, kernels, whole in seen["lacking"]:
        new = "" if name in known else " (new)"
        share = (percent(n, seen["kernels"]) for n in (kernels, whole))
        rows.append((f"`{name}`{new}", f"{times:,}", *share))
    return ["", f"### sm_{arch}", "", *table(rows)]


def page(found: Mapping[str, Any]) -> str:
    """Return the page."""
    known = set(STATEMENT.findall(ISA.read_text()))
    middle = """The share of instructions that need something, of all of an architecture:"""
    text = """In this order the most kernels become whole: the next one is what most of those have that
        are not whole yet. A name that is not *new* exists for sm_75, with other fields."""
    lines = [HEAD, *overview(found), "", middle, "", *groups(found), TAIL, "## One by one", ""]
    lines += textwrap.wrap(" ".join(text.split()), 100)
    for arch, seen in found.items():
        lines += order(arch, seen, known)
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page(json.loads(PAGE.with_suffix(".json").read_text())))


if __name__ == "__main__":
    main()
