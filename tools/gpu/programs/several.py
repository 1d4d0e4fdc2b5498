"""Run scripts of examples/ one after the other in this process, with deterministic algorithms.

several.py train_gpt.py --steps 4 + train_cnn.py --steps 4
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def imitate_digits() -> None:
    """Give train_cnn.py images of its data's shape where scikit-learn, which has them, is missing.

    What counts here is that a convolution has the same bits both ways.
    """
    generator = torch.Generator().manual_seed(1)
    digits = types.SimpleNamespace(
        images=torch.randint(17, (1797, 8, 8), generator=generator).tolist(),
        target=torch.randint(10, (1797,), generator=generator).tolist(),
    )
    # With a spec, which PyTorch's compiler asks for.
    datasets = module_from_spec(ModuleSpec("sklearn.datasets", None))
    datasets.load_digits = lambda: digits  # type: ignore[attr-defined]
    package = module_from_spec(ModuleSpec("sklearn", None))
    package.datasets = datasets  # type: ignore[attr-defined]
    sys.modules |= {"sklearn": package, "sklearn.datasets": datasets}


def main() -> None:
    if find_spec("sklearn") is None:
        imitate_digits()
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
