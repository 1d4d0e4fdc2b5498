"""What ranks do together in the process group of all: how a mechanism averages, by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    return dist.get_world_size()


def mean_over_ranks(values: Sequence[Tensor], halfway: Callable[[], None]) -> None:
    """Average gradients, one by one: a new process has no buckets of another order."""
    for number, value in enumerate(values):
        if number == len(values) // 2:
            halfway()
        dist.all_reduce(value)
        value /= world_size()
