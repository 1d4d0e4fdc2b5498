"""Train the GPT of train_gpt.py as a pipeline of two stages, one process per stage.

    torchrun --nproc-per-node 2 examples/train_pipeline.py

A batch is cut into micro-batches that follow each other through the stages (one forward, one
backward). The last stage prints the losses, each stage the hash of its own parameters.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from example_support import (
    TextWindows,
    add_text_arguments,
    make_optimizer,
    make_parser,
    parameters_sha256,
    print_line,
    rank_and_world,
    set_up_device,
)
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from train_gpt import GPT

STAGES = 2


class First(nn.Module):
    """Embeddings and the first half of the blocks: characters to activations."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        half = len(gpt.blocks) // 2
        self.tokens, self.positions, self.dropout = gpt.tokens, gpt.positions, gpt.dropout
        self.blocks = gpt.blocks[:half]

    def forward(self, indexes: Tensor) -> Tensor:
        positions = torch.arange(indexes.shape[1], device=indexes.device)
        x: Tensor = self.blocks(self.dropout(self.tokens(indexes) + self.positions(positions)))
        return x


class Second(nn.Module):
    """The other blocks and the head: activations to logits."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        half = len(gpt.blocks) // 2
        self.blocks, self.norm, self.head = gpt.blocks[half:], gpt.norm, gpt.head

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def loss_of(logits: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))


def train(args: argparse.Namespace, rank: int, device: torch.device) -> None:
    torch.manual_seed(args.seed)  # both stages draw the whole model and keep their half
    gpt = GPT(args)
    model = (First(gpt) if rank == 0 else Second(gpt)).to(device)
    torch.manual_seed(args.seed + rank)
    stage = PipelineStage(model, rank, STAGES, device)
    schedule = Schedule1F1B(stage, args.micro_batches, loss_fn=loss_of)
    optimizer = make_optimizer(args, model)
    windows = TextWindows(args, args.block + 1)
    windows.rank, windows.world = 0, 1  # the stages see the same samples
    for step in range(1, args.steps + 1):
        (rows,) = windows.next()
        rows = rows.to(device)
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(rows[:, :-1].contiguous())
        else:
            losses: list[Tensor] = []
            schedule.step(target=rows[:, 1:].contiguous(), losses=losses)
            print_line(f"step={step} loss={torch.stack(losses).mean().item()!r}")
        optimizer.step()
    print_line(f"rank={rank} params_sha256={parameters_sha256(model)}")


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    parser.add_argument("--micro-batches", type=int, default=4)
    args = parser.parse_args()
    rank, world = rank_and_world()
    if world != STAGES:
        parser.error(f"the pipeline has [{STAGES}] stages, but there are [{world}] processes")
    if args.dtype not in ("fp32", "float32") or args.parallel != "ddp":
        parser.error("the pipeline trains in fp32 and is parallel in its own way")
    if args.batch % args.micro_batches:
        parser.error(f"--batch [{args.batch}] is no multiple of [{args.micro_batches}] parts")
    device = set_up_device(world)
    train(args, rank, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
