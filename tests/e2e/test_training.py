"""examples/train_gpt.py on the soft GPU: right numbers, and the same bits however it is run."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from job import PYFT, TRAIN

STEPS = 20
SHORT = 5
TOLERANCE = 1e-4
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))


class Run:
    def __init__(self, text: str) -> None:
        self.losses = re.findall(r"step=\d+ loss=(\S+)", text)
        self.values = [float(loss) for loss in self.losses]
        self.parameters = re.findall(r"rank=0 params_sha256=(\S+)", text)


def execute(how: str, *arguments: str) -> Run:
    """`how` is made of the words: cpu, proxied, direct, torchrun."""
    words = how.split()
    command = [sys.executable, TRAIN, *arguments]
    if "torchrun" in words:
        command = [TORCHRUN, "--nproc-per-node", "1", TRAIN, *arguments]
    if "cpu" not in words:
        direct = ["--direct"] if "direct" in words else []
        command = [PYFT, "run", "--gpus", "soft:1", *direct, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return Run(done.stdout)


@cache
def long_run(how: str) -> Run:
    return execute(how, "--steps", str(STEPS))


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
    again = execute(how, "--steps", str(SHORT))
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
    proxied, direct = execute("proxied", *small, *options), execute("direct", *small, *options)
    assert len(proxied.losses) == 3
    assert proxied.losses == direct.losses
    assert proxied.parameters == direct.parameters
    if "--dropout" not in options:
        cpu = execute("cpu", *small, *options)
        assert proxied.values[0] == pytest.approx(cpu.values[0], rel=1e-2)
