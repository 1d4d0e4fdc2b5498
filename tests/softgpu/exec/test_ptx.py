"""PTX instructions on random operands: what the soft GPU executes is what PTX says.

SOFTGPU_SEED chooses other operands.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import ptx  # noqa: E402
import ptx_bits  # noqa: E402
import ptx_convert  # noqa: E402
import ptx_float  # noqa: E402
import ptx_integer  # noqa: E402
import ptx_warp  # noqa: E402

SEED = int(os.environ.get("SOFTGPU_SEED", "1"))
MODULES = (ptx_bits, ptx_integer, ptx_float, ptx_convert, ptx_warp)
FAMILIES = {name: cases for module in MODULES for name, cases in module.FAMILIES.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_instructions(family: str, tmp_path: Path) -> None:
    if ptx.assembler() is None:
        pytest.skip("[ptxas]: it is neither in the triton wheel nor on the path")
    wrong = ptx.wrong(FAMILIES[family](), random.Random(f"{SEED} {family}"), tmp_path)
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)}\n" + "\n".join(wrong[:12])
