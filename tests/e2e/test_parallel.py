"""The examples over several ranks: copies (DDP), shares (FSDP2), pipeline stages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from job import PYFT, ROOT

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
STEPS = 3
TOLERANCE = 1e-4
CASES = {
    "ddp": ("train_gpt.py", "--dropout", "0.1"),
    "ddp fp16": ("train_t5.py", "--dtype", "fp16"),
    "fsdp": ("train_bert.py", "--parallel", "fsdp"),
    "pipeline": ("train_pipeline.py",),
}
_LONG = {"ddp fp16": pytest.mark.long, "pipeline": pytest.mark.long}


@cache
def run(case: str, how: str) -> tuple[list[str], list[str]]:
    """Return losses and hashes of the ranks, as printed."""
    script, *arguments = CASES[case]
    command = [TORCHRUN, "--standalone", "--nproc-per-node", "2", str(ROOT / "examples" / script)]
    command += [*arguments, "--steps", str(STEPS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if how != "cpu":
        direct = ["--direct"] if how == "direct" else []
        command = [PYFT, "run", "--gpus", "soft:2", *direct, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    # Without pyft, processes over gloo abort at their end now and then, with all losses printed.
    assert done.returncode == 0 or how == "cpu", done.stderr
    losses = re.findall(r"step=\d+ loss=(\S+)", done.stdout)
    assert len(losses) == STEPS, done.stderr
    return losses, sorted(re.findall(r"rank=\d+ params_sha256=\S+", done.stdout))


@pytest.mark.parametrize("case", [pytest.param(case, marks=_LONG.get(case, ())) for case in CASES])
def test_proxied_and_direct_are_bitwise_equal(case: str) -> None:
    assert run(case, "proxied") == run(case, "direct")


@pytest.mark.parametrize("case", ["ddp", "ddp fp16", "fsdp"])
def test_ranks_end_with_the_same_parameters(case: str) -> None:
    _, hashes = run(case, "proxied")
    assert len(hashes) == 2
    assert len({line.split("=")[-1] for line in hashes}) == 1


@pytest.mark.parametrize("case", ["fsdp", "pipeline"])
def test_losses_agree_with_the_cpu(case: str) -> None:
    soft, cpu = ([float(loss) for loss in run(case, how)[0]] for how in ("proxied", "cpu"))
    assert soft == pytest.approx(cpu, rel=TOLERANCE)
    assert soft[-1] < soft[0]
