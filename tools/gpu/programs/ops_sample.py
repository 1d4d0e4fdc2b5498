"""Run every N-th operator of PyTorch's operator database on the GPU; print JSON: name -> outcome.

An outcome is a hash of the results of its first samples, or the kind of error. Two runs on the
same device must print the same.

    ops_sample.py EVERY SECONDS
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import time
import types
from typing import Any

if importlib.util.find_spec("expecttest") is None:
    # torch.testing imports it for tests of printed text, none of which run here.
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = object  # type: ignore[attr-defined]

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

SAMPLES = 4
# Memory as it was found, or numbers of a generator whose use is not the operator's.
UNDEFINED = ("empty", "new_empty", "resize", "randn", "rand", "randint", "normal", "uniform",
             "bernoulli", "multinomial", "cauchy", "exponential", "geometric", "log_normal")  # fmt: skip


def hash_of(results: list[Any]) -> str:
    digest = hashlib.sha256()
    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            raw = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
            digest.update(bytes(raw.reshape(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()[:16]


def outcome(op: Any) -> str:
    """Run an operator's first samples; the seed makes them the same each time."""
    torch.manual_seed(1)
    results = []
    try:
        for number, sample in enumerate(op.sample_inputs("cuda", torch.float32)):
            if number == SAMPLES:
                break
            results.append(op(sample.input, *sample.args, **sample.kwargs))
        return hash_of(results)
    except Exception as error:  # what it is belongs to the outcome
        return type(error).__name__


def main() -> None:
    every, seconds = int(sys.argv[1]), float(sys.argv[2])
    torch.use_deterministic_algorithms(True, warn_only=True)
    deadline = time.monotonic() + seconds
    outcomes = {}
    for op in op_db[::every]:
        if op.name.startswith(UNDEFINED) or torch.float32 not in op.dtypes:
            continue
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        outcomes[name] = outcome(op)
        if time.monotonic() > deadline:
            break
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
