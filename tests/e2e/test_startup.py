"""tests/startup: a program that compiles nothing does without torch._dynamo, others have all of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
import torch
from torch import nn
assert gc.isenabled()
model = nn.Linear(3, 3)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
assert "sympy" not in sys.modules
import torch._dynamo.config
from torch._dynamo.utils import counters
assert "sympy" in sys.modules
assert sys.modules["torch._dynamo"] is torch._dynamo
assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
compiled = torch.compile(model, backend="eager", fullgraph=True)
assert torch.equal(compiled(torch.ones(2, 3)), model(torch.ones(2, 3)))
assert counters["stats"]["unique_graphs"] == 1
"""


def test_the_compiler_is_there_when_a_program_asks_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
