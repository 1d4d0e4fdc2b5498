"""examples/train_gpt.py on the soft GPU: right numbers, and the same bits however it is run."""

from __future__ import annotations

from functools import cache

import pytest
from example_run import Run, execute

SCRIPT = "train_gpt.py"
STEPS = 20
SHORT = 5
TOLERANCE = 1e-4


@cache
def long_run(how: str) -> Run:
    return execute(SCRIPT, how, "--steps", str(STEPS))


def test_losses_agree_with_the_cpu() -> None:
    soft, cpu = long_run("proxied"), long_run("cpu")
    assert len(soft.values) == STEPS
    for step in range(SHORT):
        assert soft.values[step] == pytest.approx(cpu.values[step], rel=TOLERANCE), step + 1


def test_loss_falls() -> None:
    values = long_run("proxied").values
    assert sum(values[-5:]) < sum(values[:5])
    assert values[-1] < values[0]


def test_proxied_and_direct_are_bitwise_equal() -> None:
    proxied, direct = long_run("proxied"), long_run("direct")
    assert proxied.losses == direct.losses
    assert proxied.parameters == direct.parameters
    assert len(proxied.parameters) == 1


@pytest.mark.parametrize("how", ["proxied", "direct", "proxied torchrun", "direct torchrun"])
def test_every_run_gives_the_same_bits(how: str) -> None:
    again = execute(SCRIPT, how, "--steps", str(SHORT))
    assert again.losses == long_run("proxied").losses[:SHORT]


@pytest.mark.parametrize(
    "options",
    [
        ("--dtype", "float16", "--optimizer", "adamw-fused"),
        ("--dtype", "bfloat16", "--optimizer", "sgd"),
        ("--dropout", "0.1"),
    ],
)
def test_variants_are_bitwise_equal(options: tuple[str, ...]) -> None:
    small = ("--steps", "3", "--layers", "1", "--channels", "64", "--block", "32")
    proxied = execute(SCRIPT, "proxied", *small, *options)
    direct = execute(SCRIPT, "direct", *small, *options)
    assert len(proxied.losses) == 3
    assert proxied.losses == direct.losses
    assert proxied.parameters == direct.parameters
    if "--dropout" not in options:
        cpu = execute(SCRIPT, "cpu", *small, *options)
        assert proxied.values[0] == pytest.approx(cpu.values[0], rel=1e-2)
