"""Launches that the soft GPU executes twice: memory has what one has written, and both are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cuda import HERE, compile_and_run

INCLUDE = HERE.parents[2] / "softgpu" / "include"


@pytest.mark.parametrize("seed", ["", "3"])
def test_kernels_are_executed_twice(
    seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed:
        monkeypatch.setenv("SOFTGPU_NOISE", seed)
    source = str(HERE / "cuda" / "twice.cu")
    out = compile_and_run(
        tmp_path / "twice", f"-I{INCLUDE}", source, run_with=[seed] if seed else []
    )
    assert out.splitlines()[-1] == "0 failures"
    assert out.splitlines().count("once") == 1, "the system is called once"
