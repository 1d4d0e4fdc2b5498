"""Every instruction form on random operands: the executor and an independent model agree.

SOFTGPU_SEED chooses other operands.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import sass_arithmetic  # noqa: E402
import sass_model  # noqa: E402
from sass import TABLE  # noqa: E402

OPS = sorted({form.op for form in TABLE.forms if form.op in sass_model.MODELS})


@pytest.mark.parametrize("op", OPS)
def test_arithmetic(op: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("SOFTGPU_SEED", "1"))
    source = random.Random(f"{seed} {op}")
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
    assert not wrong, f"SOFTGPU_SEED={seed}, {len(wrong)} of {len(words)}\n" + "\n".join(wrong[:8])
