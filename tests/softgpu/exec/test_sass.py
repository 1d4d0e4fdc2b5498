"""Every instruction form on random operands: the executor and an independent model agree.

SOFTGPU_SEED chooses other operands.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))
import sass_arithmetic  # noqa: E402
import sass_memory  # noqa: E402
import sass_model  # noqa: E402
import sass_tensor  # noqa: E402
import sass_warp  # noqa: E402
from sass import EXIT, FORMS, TABLE, Kernel, asm  # noqa: E402

SEED = int(os.environ.get("SOFTGPU_SEED", "1"))
FORMS_FILE = Path(tempfile.mkdtemp()) / "forms"
os.environ["SOFTGPU_FORMS"] = str(FORMS_FILE)  # of the runner
OPS = sorted({form.op for form in TABLE.forms if form.op in sass_model.MODELS})


@pytest.mark.parametrize("op", OPS)
def test_arithmetic(op: str, tmp_path: Path) -> None:
    source = random.Random(f"{SEED} {op}")
    state = sass_arithmetic.State(source)
    words = [
        sass_arithmetic.random_instruction(form, fields, source)
        for form in TABLE.forms
        if form.op == op
        for fields in sass_arithmetic.combinations(form, source)
    ]
    memory, _ = sass_arithmetic.make_kernel(words, state).run(tmp_path / "kernel")
    wrong = [
        f"{word.form.full_name} {word.fields} {word.operands} negated {word.negated} absolute "
        f"{word.absolute} {word.selects} {word.predicates}: {why}"
        for word, why in sass_arithmetic.compare(words, state, memory)
    ]
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)} of {len(words)}\n" + "\n".join(wrong[:8])


@pytest.mark.parametrize("op", sass_memory.OPS)
def test_memory(op: str, tmp_path: Path) -> None:
    source = random.Random(f"{SEED} {op}")
    state = sass_arithmetic.State(source)
    words = [
        sass_memory.random_access(form, fields, source)
        for form in TABLE.forms
        if form.op == op
        for fields in sass_memory.combinations(form, source)
    ]
    kernel = sass_memory.make_kernel([word for word, _ in words], state)
    memory, _ = kernel.run(tmp_path / "kernel")
    wrong = sass_memory.compare(words, state, memory)
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)} of {len(words)}\n" + "\n".join(wrong[:8])


@pytest.mark.parametrize("group", sass_warp.GROUPS, ids=lambda group: group.__name__)
def test_warp(group: sass_warp.Group, tmp_path: Path) -> None:
    state = sass_arithmetic.State(random.Random(f"{SEED} warp"))
    wrong = [
        f"{case.name}: {what}"
        for case in group()
        for what in sass_warp.run(case, state, tmp_path / "kernel")
    ]
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)}\n" + "\n".join(wrong[:12])


def test_tensor(tmp_path: Path) -> None:
    state = sass_tensor.exact_state(random.Random(f"{SEED} tensor"))
    wrong = [
        f"{case.name}: {what}"
        for case in sass_tensor.tensor()
        for what in sass_warp.run(case, state, tmp_path / "kernel")
    ]
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)}\n" + "\n".join(wrong[:12])


@pytest.mark.parametrize("form", ["R", "I", "C", "U", "R_16", "C_16", "U_16"])
def test_special_functions(form: str, tmp_path: Path) -> None:
    wrong = sass_tensor.wrong_mufu(form, tmp_path / "kernel", random.Random(f"{SEED} {form}"))
    assert not wrong, f"SOFTGPU_SEED={SEED}, {len(wrong)}\n" + "\n".join(wrong[:12])


def test_trap(tmp_path: Path) -> None:
    kernel = Kernel([asm("BPT_plain", CODE=1), EXIT], bytearray(16))
    _, said = kernel.run(tmp_path / "kernel", ok=False)
    assert said == "kernel [sass]: trap in block [0,0,0], thread [0,0,0], pc [0x0]\n"


def test_coverage() -> None:
    """Every line of the table, and every variant that PyTorch 2.11.0 has, has been executed by the
    tests above."""
    lines = [line.split() for line in FORMS_FILE.read_text().splitlines()]
    forms, variants = {form for form, _ in lines}, {variant for _, variant in lines}
    wanted = set((HERE / "wheel_variants.txt").read_text().split())
    print(f"{len(forms)} of {len(FORMS)} forms, {len(variants & wanted)} of {len(wanted)} variants")
    assert sorted(set(FORMS) - forms) == []
    if SEED == 1:  # another choice of modifiers may leave one out
        assert sorted(wanted - variants) == []
