"""Who says that a fault has not happened: the agent, once, of what no device of the job has had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

from pyft.errors import NOT_INJECTED

TWO_DEVICES = """
import torch
model = torch.nn.Linear(8, 8, device="cuda:0")
other = torch.ones(3, device="cuda:1")
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    model(torch.ones(4, 8, device="cuda:0")).sum().backward()
    optimizer.step()
    other += 1
print(other.sum().item())
"""
INJECT = "--inject"  # or the variable that asks for it
# Device 1 comes to none of them.
HAPPEN = [
    (INJECT, "server-kill,rank=0,step=2,call=6"),
    ("SOFTGPU_FAULT", "error:20,code=700,device=0"),
    ("SOFTGPU_FAULT", "error,code=700,kernel=cublas"),
    ("PYFT_FAULT", "server.before_dispatch:60"),
]
NEVER = [
    (INJECT, "server-kill,rank=0,step=2,call=900"),
    (INJECT, "sticky,rank=0,step=2,call=900"),
    ("SOFTGPU_FAULT", "error:9000,code=700,device=0"),
    ("PYFT_FAULT", "server.before_dispatch:9000"),
]


def run(folder: Path, asks: str, fault: str) -> subprocess.CompletedProcess[str]:
    options = ["--gpus", "soft:2", *((INJECT, fault) if asks == INJECT else ())]
    variables = {} if asks == INJECT else {asks: fault}
    return subprocess.run(
        [PYFT, "run", *options, "--", sys.executable, "-c", TWO_DEVICES],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(("asks", "fault"), HAPPEN)
def test_what_one_of_two_devices_has_had_has_happened(
    tmp_path: Path, asks: str, fault: str
) -> None:
    done = run(tmp_path, asks, fault)
    assert (done.returncode, done.stdout) == (0, "15.0\n"), done.stderr
    assert "1 of 1 recovered" in done.stderr
    assert "did not happen" not in done.stderr
    assert "has not come to" not in done.stderr


@pytest.mark.parametrize(("asks", "fault"), NEVER)
def test_what_no_device_has_had_is_told_once(tmp_path: Path, asks: str, fault: str) -> None:
    done = run(tmp_path, asks, fault)
    assert done.returncode == NOT_INJECTED, done.stderr
    assert done.stderr.count("did not happen") == 1, done.stderr
