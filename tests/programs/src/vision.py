"""Networks for pictures: timm's, torchvision's, an autoencoder, a pair of adversaries.

python vision.py timm|resnet|vae|dcgan
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import signature
import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH = 8, 4  # a lost GPU is noticed some steps after it was asked for


def pictures(step: int, size: int, channels: int = 3) -> torch.Tensor:
    """Return pictures that a seed gives, on the GPU."""
    dice = torch.Generator().manual_seed(step)
    return torch.rand(BATCH, channels, size, size, generator=dice).cuda()


def classify(model: nn.Module, size: int) -> None:
    """Train with labels, then evaluate."""
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    labels = torch.arange(BATCH, device="cuda")
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures(step, size)), labels)
        loss.backward()
        optimizer.step()
        signature.loss(loss.detach())
    model.eval()
    with torch.no_grad():
        signature.state(model(pictures(STEPS, size).to(memory_format=torch.channels_last)))
    signature.state(model, optimizer)


def of_timm() -> None:
    """A vision transformer and a ConvNeXt."""
    import timm

    tiny = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2, num_classes=BATCH
    )
    classify(tiny, 16)
    stages = {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16), "patch_size": 2}
    classify(timm.models.ConvNeXt(**stages, num_classes=BATCH), 32)


def resnet() -> None:
    """torchvision's smallest."""
    import torchvision

    block = torchvision.models.resnet.BasicBlock
    classify(torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes=BATCH), 32)


class Autoencoder(nn.Module):
    """A variational one."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mean, self.spread = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.out = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.into(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        apart = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()
        return F.binary_cross_entropy_with_logits(self.out(code), x, reduction="sum") + apart


def vae() -> None:
    """Noise comes from the GPU's generator."""
    model = Autoencoder().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(pictures(step, 8, 1).flatten(1))
        loss.backward()
        optimizer.step()
        signature.loss(loss.detach())
    signature.state(model, optimizer)


def dcgan() -> None:
    """Two networks with an optimizer each: two cuts a step."""
    maker = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).cuda()
    judge = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, bias=False)
    ).cuda()
    both = [
        torch.optim.Adam(one.parameters(), lr=2e-4, betas=(0.5, 0.999)) for one in (maker, judge)
    ]

    def verdict(picture: torch.Tensor, real: float) -> torch.Tensor:
        logits = judge(picture).flatten()
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))

    for step in range(STEPS):
        made = maker(torch.randn(BATCH, 8, 1, 1, device="cuda"))
        both[1].zero_grad()
        loss_judge = verdict(pictures(step, 8), 1.0) + verdict(made.detach(), 0.0)
        loss_judge.backward()
        both[1].step()
        both[0].zero_grad()
        loss_maker = verdict(made, 1.0)
        loss_maker.backward()
        both[0].step()
        signature.loss(loss_judge.detach())
        signature.loss(loss_maker.detach())
    signature.state(maker, judge, both)


PROGRAMS: dict[str, Callable[[], None]] = {
    "timm": of_timm,
    "resnet": resnet,
    "vae": vae,
    "dcgan": dcgan,
}

if __name__ == "__main__":
    torch.manual_seed(1)
    PROGRAMS[sys.argv[1]]()
