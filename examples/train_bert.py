"""Train a small character-level BERT: guess hidden characters of the standard library's source.

Plain PyTorch: runs on the CPU, on one GPU, or under torchrun with one process per GPU. Everything
random comes from --seed, so two runs on the same kind of device print the same numbers.

    python examples/train_bert.py --steps 20
    torchrun --nproc-per-node 2 examples/train_bert.py
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from example_support import ALPHABET, TextWindows, add_text_arguments, make_parser, train
from torch import Tensor, nn

MASK = len(ALPHABET)
VOCABULARY = len(ALPHABET) + 1
IGNORED = -100  # target of the characters that need not be guessed
# Of the characters to be guessed, most are hidden, some replaced, some left: BERT's recipe.
GUESSED, HIDDEN, REPLACED = 0.15, 0.8, 0.1


class MaskedWindows(TextWindows):
    """Windows of the text with some characters hidden, and those characters as the targets."""

    def next(self) -> tuple[Tensor, ...]:
        (rows,) = super().next()
        shape = (self.world * self.batch, self.length)
        chosen = self.mine(torch.rand(shape, generator=self.generator)) < GUESSED
        fate = self.mine(torch.rand(shape, generator=self.generator))
        other = self.mine(torch.randint(len(ALPHABET), shape, generator=self.generator))
        targets = rows.masked_fill(~chosen, IGNORED)
        replaced = chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED)
        inputs = rows.masked_fill(chosen & (fate < HIDDEN), MASK)
        return torch.where(replaced, other, inputs), targets


class BERT(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        width = args.channels
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(args.block, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(args.dropout)
        layer = nn.TransformerEncoderLayer(
            width, args.heads, 4 * width, args.dropout, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, VOCABULARY)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, indexes: Tensor) -> Tensor:
        positions = torch.arange(indexes.shape[1], device=indexes.device)
        x = self.dropout(self.norm(self.tokens(indexes) + self.positions(positions)))
        return self.head(self.transform(self.encoder(x)))


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return how badly the chosen characters are guessed."""
    inputs, targets = batch
    logits = model(inputs)
    return F.cross_entropy(
        logits.reshape(-1, VOCABULARY), targets.reshape(-1), ignore_index=IGNORED
    )


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    args = parser.parse_args()
    train(args, BERT, MaskedWindows(args, args.block), loss_of)


if __name__ == "__main__":
    main()
