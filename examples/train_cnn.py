"""Train a small ResNet on the handwritten digits that come with scikit-learn.

Plain PyTorch: runs on the CPU, on one GPU, or under torchrun with one process per GPU. Everything
random comes from --seed, so two runs on the same kind of device print the same numbers.

    python examples/train_cnn.py --steps 20
    torchrun --nproc-per-node 2 examples/train_cnn.py
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.nn.functional as F
from example_support import make_parser, rank_and_world, train
from torch import Tensor, nn

CLASSES = 10
BRIGHTEST = 16.0  # the images are 8x8, with values from 0 to this


def load_digits() -> tuple[Tensor, Tensor]:
    """Return all images, shaped for a convolution, and the digit that each shows."""
    try:
        from sklearn import datasets
    except ImportError as error:
        sys.exit(f"train_cnn.py: the digits come with [scikit-learn], install it: {error}")
    digits = datasets.load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / BRIGHTEST
    return images.unsqueeze(1), torch.tensor(digits.target, dtype=torch.long)


class DigitBatches:
    """Images in random order, each once per epoch. Each process keeps its share of a batch."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.images, self.labels = load_digits()
        self.batch = args.batch
        self.rank, self.world = rank_and_world()
        self.generator = torch.Generator().manual_seed(args.seed)
        self.order = torch.empty(0, dtype=torch.long)

    def next(self) -> tuple[Tensor, ...]:
        needed = self.world * self.batch
        while len(self.order) < needed:
            epoch = torch.randperm(len(self.labels), generator=self.generator)
            self.order = torch.cat([self.order, epoch])
        drawn, self.order = self.order[:needed], self.order[needed:]
        mine = drawn[self.rank * self.batch : (self.rank + 1) * self.batch]
        return self.images[mine], self.labels[mine]


def convolution(before: int, after: int, size: int, stride: int) -> nn.Sequential:
    """Return a convolution, without a bias because the normalisation has one."""
    conv = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """Two convolutions beside a short cut; a stride of 2 halves width and height."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(before, after, 3, stride)
        self.second = convolution(after, after, 3, 1)
        same = before == after and stride == 1
        self.short_cut = nn.Identity() if same else convolution(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.short_cut(x))


class ResNet(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        width = args.channels
        self.stem = nn.Sequential(convolution(1, width, 3, 1), nn.ReLU())
        self.blocks = nn.Sequential(
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
        )
        self.dropout = nn.Dropout(args.dropout)
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.stem(images)).mean(dim=(2, 3))
        return self.head(self.dropout(x))


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return how badly the digits are recognised."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="sgd", lr=0.05)
    parser.set_defaults(batch=32)
    parser.add_argument("--channels", type=int, default=16, help="of the first convolution")
    args = parser.parse_args()
    train(args, ResNet, DigitBatches(args), loss_of)


if __name__ == "__main__":
    main()
