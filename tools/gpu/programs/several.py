"""Run scripts of examples/ one after the other in this process, with deterministic algorithms.

several.py train_gpt.py --steps 4 + train_cnn.py --steps 4
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def main() -> None:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    sys.path.insert(0, str(EXAMPLES))
    words = " ".join(sys.argv[1:])
    for part in words.split(" + "):
        script, *arguments = part.split()
        print(f"== {script}", flush=True)
        sys.argv = [script, *arguments]
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")


if __name__ == "__main__":
    main()
