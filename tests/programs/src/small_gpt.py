"""A small GPT and its data, for programs that are about something else."""

from __future__ import annotations

import signature
import torch
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH, WIDTH, HEADS = 64, 16, 32, 2


class Block(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.wo = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm_1(x)
        # With tensor parallelism there are fewer heads here.
        q, k, v = (
            part(normed).unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.wq, self.wk, self.wv)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """Words in, a loss out."""

    def __init__(self, length: int = LENGTH) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(length, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(
        self,
        words: torch.Tensor,
        targets: torch.Tensor | None = None,
        places: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if places is None:
            places = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def batch(
    step: int, size: int = 2, rank: int | None = None, length: int = LENGTH
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and those that follow them, of this rank."""
    number = signature.rank() if rank is None else rank
    dice = torch.Generator().manual_seed(1000 * step + number)
    words = torch.randint(0, WORDS, (size, length + 1), generator=dice).cuda()
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()
