"""The other examples on the soft GPU: right numbers, and the same bits with and without a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import pytest
from example_run import Run, execute

STEPS = 5
MIXED_STEPS = 3
TOLERANCE = 1e-4
# fp16 rounds to 11 bits and bf16 to 8; the first steps of a training carry little more than that.
MIXED_TOLERANCE = {"fp16": 2e-3, "bf16": 1e-2}
SCRIPTS = ["train_cnn.py", "train_bert.py", "train_t5.py"]


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest, need: Callable[[str, bool, str], None]) -> str:
    if request.param == "train_cnn.py":
        found = find_spec("sklearn") is not None
        need("scikit-learn", found, "train_cnn.py takes its digits from it")
    return request.param


@cache
def run(script: str, how: str, dtype: str = "fp32", steps: int = STEPS) -> Run:
    done = execute(script, how, "--steps", str(steps), "--dtype", dtype)
    assert len(done.values) == steps
    return done


def test_proxied_and_direct_are_bitwise_equal(script: str) -> None:
    proxied, direct = run(script, "proxied"), run(script, "direct")
    assert proxied.losses == direct.losses
    assert proxied.parameters == direct.parameters
    assert len(proxied.parameters) == 1


def test_losses_agree_with_the_cpu(script: str) -> None:
    soft, cpu = run(script, "proxied").values, run(script, "cpu").values
    assert soft == pytest.approx(cpu, rel=TOLERANCE)
    assert soft[-1] < soft[0]


@pytest.mark.parametrize(
    ("script", "dtype"), [("train_cnn.py", "fp16"), ("train_t5.py", "bf16")], indirect=["script"]
)
def test_mixed_precision(script: str, dtype: str) -> None:
    mixed = run(script, "proxied", dtype, MIXED_STEPS).values
    full = run(script, "proxied").values[:MIXED_STEPS]
    assert mixed != full
    assert mixed == pytest.approx(full, rel=MIXED_TOLERANCE[dtype])
