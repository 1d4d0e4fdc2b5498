"""What a program prints so that two runs of it can be compared, bit for bit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor


def rank() -> int:
    """Return the number of this process."""
    return int(os.environ.get("RANK", "0"))


def loss(value: torch.Tensor | float) -> None:
    """Print a loss with all of its bits."""
    print(f"rank={rank()} loss={float(value).hex()}\n", end="", flush=True)


def _parts(thing: Any) -> Iterator[Any]:
    """Yield tensors and numbers, in an order that does not change."""
    if isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
        thing = thing.state_dict()
    if isinstance(thing, DTensor):
        thing = thing.to_local()
    if isinstance(thing, Mapping):
        for name in thing:
            yield str(name)
            yield from _parts(thing[name])
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _parts(one)
    else:
        yield thing


def state(*things: Any) -> None:
    """Print a hash of all tensors and numbers of models, optimizers and the like."""
    digest = hashlib.sha256()
    for part in _parts(things):
        if isinstance(part, torch.Tensor):
            data = part.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode() + data.numpy().tobytes())
        elif isinstance(part, (str, int, float, bool, type(None))):
            digest.update(repr(part).encode())
    print(f"rank={rank()} sha256={digest.hexdigest()}\n", end="", flush=True)
