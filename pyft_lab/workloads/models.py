"""Small networks and their data. A sample is a number; its contents follow from seed and number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SAMPLES = 4096
WORDS, LENGTH, WIDTH = 32, 16, 32
MASK = 0  # the word in place of those that `bert` has to guess
ROWS = 1 << 16  # of the table of `wide`


class Block(nn.Module):
    """Attention and two layers, as in a transformer."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rest = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.heads(self.norms[0](x)).view(batch, length, 3, 2, WIDTH // 2)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.rest(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(causal), Block(causal))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        return self.head(self.blocks(self.words(words) + self.places(places)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(2, 16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 8),
    )  # fmt: skip


class Wide(nn.Module):
    """A table of 4 million parameters and few products: much state beside little work."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(ROWS, 2 * WIDTH), nn.Linear(2 * WIDTH, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.drop(self.table(rows).mean(1)))


def numbers(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs, and the product of two of them."""
    inputs = torch.randn(SAMPLES, 16, generator=random)
    return inputs, inputs[:, :1] * inputs[:, 1:2]


def sequences(random: torch.Generator) -> Tensor:
    """Return rows in which each word follows from the one before, by a rule of the row."""
    word = torch.randint(1, WORDS, (SAMPLES, 1), generator=random)
    step = torch.randint(1, 8, (SAMPLES, 1), generator=random)
    return 1 + (word + step * torch.arange(LENGTH)) % (WORDS - 1)


def next_words(random: torch.Generator) -> tuple[Tensor, Tensor]:
    rows = sequences(random)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def masked_words(random: torch.Generator) -> tuple[Tensor, Tensor]:
    rows = sequences(random)
    hidden = torch.rand(rows.shape, generator=random) < 0.2
    return rows.masked_fill(hidden, MASK), rows


def images(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return noise with a bright line, whose place is the class."""
    kinds = torch.randint(8, (SAMPLES,), generator=random)
    found = torch.randn(SAMPLES, 3, 8, 8, generator=random)
    found[torch.arange(SAMPLES), :, kinds] += 1
    return found, kinds


def hashes(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows of the table; where the first one lies in it is the class."""
    rows = torch.randint(ROWS, (SAMPLES, LENGTH), generator=random)
    return rows, rows[:, 0] * 8 // ROWS


def of_classes(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


@dataclass(frozen=True)
class Workload:
    """What is trained, on what, and by which loss."""

    model: Callable[[], nn.Module]
    data: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


WORKLOADS = {
    "mlp": Workload(mlp, numbers, F.mse_loss),
    "gpt": Workload(lambda: Transformer(causal=True), next_words, of_classes),
    "bert": Workload(lambda: Transformer(causal=False), masked_words, of_classes),
    "cnn": Workload(cnn, images, of_classes),
    "wide": Workload(Wide, hashes, of_classes),
}
