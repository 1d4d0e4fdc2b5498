"""The GPT with activation checkpointing, which looks at each loss before the backward pass.

So it is told what a wrong forward pass gives before anything is recomputed. Several ranks are told
the sum of their losses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from example_support import TextWindows, add_text_arguments, make_parser, print_line, train
from train_gpt import GPT, loss_of


def told(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the loss, after printing it."""
    loss = loss_of(model, batch)
    everybodys = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(everybodys)
    torch.cuda.synchronize()
    print_line(f"told={everybodys.item()!r}")
    return loss


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    parser.add_argument("--recompute", action="store_true")
    args = parser.parse_args()
    train(args, GPT, TextWindows(args, args.block + 1), told)


if __name__ == "__main__":
    main()
