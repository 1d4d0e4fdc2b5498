"""Train a small character-level GPT on the source text of the Python standard library.

Plain PyTorch: runs on the CPU, on one GPU, or under torchrun with one process per GPU. Everything
random comes from --seed, so two runs on the same kind of device print the same numbers.

    python examples/train_gpt.py --steps 20
    torchrun --nproc-per-node 2 examples/train_gpt.py
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from example_support import ALPHABET, TextWindows, add_text_arguments, make_parser, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, channels = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, channels // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(channels, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, channels))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attention = Attention(channels, heads, dropout)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.recompute = getattr(args, "recompute", False)
        self.tokens = nn.Embedding(len(ALPHABET), args.channels)
        self.positions = nn.Embedding(args.block, args.channels)
        self.dropout = nn.Dropout(args.dropout)
        self.blocks = nn.Sequential(
            *(Block(args.channels, args.heads, args.dropout) for _ in range(args.layers))
        )
        self.norm = nn.LayerNorm(args.channels)
        self.head = nn.Linear(args.channels, len(ALPHABET), bias=False)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, indexes: Tensor) -> Tensor:
        positions = torch.arange(indexes.shape[1], device=indexes.device)
        x = self.dropout(self.tokens(indexes) + self.positions(positions))
        if not self.recompute:
            return self.head(self.norm(self.blocks(x)))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return how badly each character predicts the next one."""
    (rows,) = batch
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    parser.add_argument(
        "--recompute", action="store_true", help="activation checkpointing of each block"
    )
    args = parser.parse_args()
    train(args, GPT, TextWindows(args, args.block + 1), loss_of)


if __name__ == "__main__":
    main()
