"""Train a tiny GPT on the soft GPU and on the CPU; print losses and a hash of the parameters.

Arguments: fused (AdamW), math (attention by matrix products), drop (dropout; no comparison).
"""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

FUSED, MATH, DROP = ("fused" in sys.argv, "math" in sys.argv, 0.1 if "drop" in sys.argv else 0.0)
STEPS, VOCABULARY, WIDTH, HEADS, LENGTH = 4, 64, 64, 2, 32


class Block(nn.Module):
    """Attention and a two-layer perceptron, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROP)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=DROP)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Embedding, two blocks, and a projection to the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.tokens(tokens) + places)))


def train(device: str) -> tuple[list[float], nn.Module]:
    """Return the losses and gradient norms of all steps, and the model."""
    torch.manual_seed(1)
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=FUSED)
    data = torch.Generator().manual_seed(2)
    seen: list[float] = []
    for _ in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=data).to(device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += [loss.item(), norm.item()]
    return seen, model


if MATH:
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
values, trained = train("cuda")
flat = torch.cat([p.detach().cpu().flatten() for p in trained.parameters()])
print("losses", *values)
print("parameters", hashlib.sha256(flat.numpy().tobytes()).hexdigest())
if not DROP:
    expected, reference = train("cpu")
    worst = max(abs(a - b) for a, b in zip(values, expected, strict=True))
    flat_cpu = torch.cat([p.detach().flatten() for p in reference.parameters()])
    moved = (flat - flat_cpu).abs().max().item()
    if worst > 1e-5 or moved > 1e-3:
        sys.exit(f"losses differ from the CPU's by {worst}, parameters by {moved}")
