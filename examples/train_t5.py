"""Train a small character-level T5: fill in spans cut out of the standard library's source.

Plain PyTorch: runs on the CPU, on one GPU, or under torchrun with one process per GPU. Everything
random comes from --seed, so two runs on the same kind of device print the same numbers.

    python examples/train_t5.py --steps 20
    torchrun --nproc-per-node 2 examples/train_t5.py
"""

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from example_support import ALPHABET, TextWindows, add_text_arguments, make_parser, train
from torch import Tensor, nn

SPANS = 4  # one somewhere in each quarter of a sample
SPAN_LENGTH = 4
SENTINELS = len(ALPHABET)  # the first of SPANS tokens that stand for the spans, and one for the end
START = SENTINELS + SPANS + 1
VOCABULARY = START + 1
BUCKETS, FARTHEST = 16, 64  # of relative positions


class CorruptedWindows(TextWindows):
    """Windows with spans cut out, what the decoder reads, and what it should write."""

    def next(self) -> tuple[Tensor, ...]:
        (rows,) = super().next()
        room = self.length // SPANS - SPAN_LENGTH + 1
        shape = (self.world * self.batch, SPANS)
        offsets = self.mine(torch.randint(room, shape, generator=self.generator)).tolist()
        pairs = [self.cut(row, spans) for row, spans in zip(rows, offsets, strict=True)]
        sources, targets = (torch.stack(parts) for parts in zip(*pairs, strict=True))
        return sources, F.pad(targets[:, :-1], (1, 0), value=START), targets

    def cut(self, row: Tensor, offsets: list[int]) -> tuple[Tensor, Tensor]:
        """Return the row with sentinels in place of its spans, and the spans after theirs."""
        source, target = [], []
        for span, (part, offset) in enumerate(zip(row.chunk(SPANS), offsets, strict=True)):
            sentinel = torch.tensor([SENTINELS + span])
            end = offset + SPAN_LENGTH
            source += [part[:offset], sentinel, part[end:]]
            target += [sentinel, part[offset:end]]
        return torch.cat(source), torch.cat([*target, torch.tensor([SENTINELS + SPANS])])


class RelativeBias(nn.Module):
    """T5's positions: a number per head for each distance, with coarser steps farther away."""

    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.bias = nn.Embedding(BUCKETS, heads)

    def buckets(self, time: int) -> Tensor:
        position = torch.arange(time)
        behind = position[:, None] - position[None, :]
        count, base = BUCKETS, torch.zeros_like(behind)
        if self.both_ways:
            count //= 2
            base = (behind < 0).long() * count
        distance = behind.abs() if self.both_ways else behind.clamp(min=0)
        exact = count // 2
        ratio = (distance.clamp(min=1).double() / exact).log() / math.log(FARTHEST / exact)
        coarse = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
        return base + torch.where(distance < exact, distance, coarse)

    def forward(self, x: Tensor) -> Tensor:
        buckets = self.buckets(x.shape[1]).to(x.device)
        return self.bias(buckets).permute(2, 0, 1)


class Attention(nn.Module):
    """Attention of `x` to `memory`. T5 puts no 1/sqrt(d) into the scores but into the weights."""

    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size = heads, channels // heads
        self.query = nn.Linear(channels, channels, bias=False)
        self.key_value = nn.Linear(channels, 2 * channels, bias=False)
        self.out = nn.Linear(channels, channels, bias=False)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.query.weight, std=(channels * self.size) ** -0.5)
        nn.init.normal_(self.key_value.weight, std=channels**-0.5)
        nn.init.normal_(self.out.weight, std=channels**-0.5)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        key, value = self.key_value(memory).chunk(2, dim=2)
        scores = self.split(self.query(x)) @ self.split(key).transpose(2, 3)
        if bias is not None:
            scores = scores + bias
        weights = self.dropout(scores.softmax(dim=-1, dtype=torch.float32))
        y = weights.to(value.dtype) @ self.split(value)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """A layer of the encoder, or with `cross` one of the decoder."""

    def __init__(self, args: argparse.Namespace, cross: bool) -> None:
        super().__init__()
        width = args.channels
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for _ in range(3 if cross else 2))
        self.attention = Attention(width, args.heads, args.dropout)
        self.cross = Attention(width, args.heads, args.dropout) if cross else None
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False),
            nn.ReLU(),
            nn.Dropout(args.dropout),
            nn.Linear(4 * width, width, bias=False),
        )
        self.dropout = nn.Dropout(args.dropout)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, bias))
        if self.cross is not None and memory is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory, None))
        return x + self.dropout(self.mlp(self.norms[-1](x)))


class T5(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.width = args.channels
        self.tokens = nn.Embedding(VOCABULARY, self.width)
        self.encoder_bias = RelativeBias(args.heads, both_ways=True)
        self.decoder_bias = RelativeBias(args.heads, both_ways=False)
        self.encoder = nn.ModuleList(Layer(args, cross=False) for _ in range(args.layers))
        self.decoder = nn.ModuleList(Layer(args, cross=True) for _ in range(args.layers))
        self.encoder_norm = nn.RMSNorm(self.width, eps=1e-6)
        self.decoder_norm = nn.RMSNorm(self.width, eps=1e-6)
        self.dropout = nn.Dropout(args.dropout)

    def encode(self, source: Tensor) -> Tensor:
        x = self.dropout(self.tokens(source))
        bias = self.encoder_bias(x)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.dropout(self.encoder_norm(x))

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        memory = self.encode(source)
        x = self.dropout(self.tokens(written))
        future = torch.ones(written.shape[1], written.shape[1], device=x.device).triu(1).bool()
        bias = self.decoder_bias(x).masked_fill(future, -math.inf)
        for layer in self.decoder:
            x = layer(x, bias, memory)
        x = self.dropout(self.decoder_norm(x))
        return F.linear(x * self.width**-0.5, self.tokens.weight)  # scaled because it is shared


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return how badly the spans are filled in."""
    source, written, targets = batch
    logits = model(source, written)
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    args = parser.parse_args()
    if args.block % SPANS or args.block < SPANS * SPAN_LENGTH:
        parser.error(f"--block [{args.block}] is no multiple of [{SPANS}] that has room for spans")
    train(args, T5, CorruptedWindows(args, args.block), loss_of)


if __name__ == "__main__":
    main()
