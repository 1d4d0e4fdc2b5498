"""Kinds of models beyond models.py: four steps of each on both devices with the same losses."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.backends.cudnn.enabled = False  # the soft GPU has no cuDNN
Batch = list[torch.Tensor]
STEPS, TOLERANCE = 4, 1e-4


class Attention(nn.Module):
    """A graph attention layer: softmax over the edges that end in a node."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 32, bias=False), nn.Linear(32, 4)
        self.score = nn.Parameter(torch.randn(64) * 0.1)

    def forward(self, x: torch.Tensor, source: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        h = self.project(x)
        score = F.leaky_relu(torch.cat([h[source], h[end]], 1) @ self.score)
        largest = x.new_full((len(x),), -1e9).scatter_reduce(0, end, score, "amax")
        weight = torch.exp(score - largest[end])
        total = x.new_zeros(len(x)).index_add(0, end, weight)
        sums = torch.zeros_like(h).index_add(0, end, h[source] * (weight / total[end])[:, None])
        return self.out(F.elu(sums))


class Autoencoder(nn.Module):
    """A variational one; its noise is part of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(64, 16), nn.Linear(8, 64)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, variance = self.encode(x).chunk(2, 1)
        image = torch.sigmoid(self.decode(mean + noise * torch.exp(0.5 * variance)))
        divergence = -0.5 * torch.sum(1 + variance - mean.pow(2) - variance.exp())
        return F.binary_cross_entropy(image, x, reduction="sum") + divergence


class Bags(nn.Module):
    """Tables with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(100, 16, mode="mean", sparse=True)
        self.table, self.out = nn.Embedding(100, 16, sparse=True), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.bag(x) + self.table(x).sum(1))


class Recurrent(nn.Module):
    """All three recurrent layers, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)
        self.gru, self.rnn = nn.GRU(32, 16, batch_first=True), nn.RNN(16, 10, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(self.gru(self.lstm(x)[0])[0])[0][:, -1]


class Recomputed(nn.Module):
    """A transformer whose layers are computed again for their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.out(x.mean(1))


def volumes() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool3d(2),
        nn.Conv3d(8, 16, 3, padding=1, groups=4), nn.InstanceNorm3d(16, affine=True), nn.Mish(),
        nn.Upsample(scale_factor=2, mode="trilinear"), nn.ConvTranspose3d(16, 2, 1),
    )  # fmt: skip


def generator_and_critic() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh(),
        nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(16, 1, 4), nn.Flatten(0),
    )  # fmt: skip


def speech() -> nn.Module:
    return nn.Sequential(nn.Conv1d(8, 32, 3, padding=1), nn.GELU(), nn.Conv1d(32, 12, 1))


def classes(net: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(net(*batch[:-1]), batch[-1])


def alignment(net: nn.Module, batch: Batch) -> torch.Tensor:
    scores = net(batch[0]).permute(2, 0, 1).log_softmax(-1)
    return F.ctc_loss(scores, batch[1], torch.full((3,), 30), torch.tensor([8, 6, 5]))


def criticism(net: nn.Module, batch: Batch) -> torch.Tensor:
    scores = net(*batch)
    return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))


def real(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(*shape)


def whole(limit: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(1, limit, shape)


Kind = tuple[Callable[[], nn.Module], list[Callable[[], torch.Tensor]], Callable]
KINDS: dict[str, Kind] = {
    "graph": (Attention, [real(50, 16), whole(50, 200), whole(50, 200), whole(4, 50)], classes),
    "autoencoder": (Autoencoder, [real(16, 64), real(16, 8)], lambda net, b: net(*b)),
    "bags": (Bags, [whole(100, 6, 7), whole(10, 6)], classes),
    "recurrent": (Recurrent, [real(4, 9, 12), whole(10, 4)], classes),
    "recomputed": (Recomputed, [real(4, 10, 32), whole(10, 4)], classes),
    "volumes": (volumes, [real(1, 1, 8, 8, 8), whole(2, 1, 8, 8, 8)], classes),
    "generator": (generator_and_critic, [real(8, 16, 1, 1)], criticism),
    "speech": (speech, [real(3, 8, 30), whole(12, 3, 8)], alignment),
}


def train(kind: Kind, device: str) -> list[float]:
    make, inputs, loss_of = kind
    torch.manual_seed(0)
    net = make().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        batch = [draw().to(device) for draw in inputs]
        loss = loss_of(net, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    for name, kind in KINDS.items():
        gpu, cpu = train(kind, "cuda"), train(kind, "cpu")
        if any(abs(a - b) > TOLERANCE * abs(b) for a, b in zip(gpu, cpu, strict=True)):
            sys.exit(f"{name}: {gpu} on the soft GPU, {cpu} on the CPU")
        if gpu[0] == gpu[-1]:
            sys.exit(f"{name} does not learn: {gpu}")


main()
