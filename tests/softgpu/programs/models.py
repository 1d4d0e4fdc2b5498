"""Train one small model (argument: its name) in fp32, fp16 and bf16 on both devices; compare."""

from __future__ import annotations

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.enabled = False  # the soft GPU has no cuDNN


class Lstm(nn.Module):
    """Two LSTM layers and a classifier of the last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(24, 32, 2, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def model(name: str) -> nn.Module:
    """Return a new model."""
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2),
            nn.GroupNorm(4, 32),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
    if name == "encoder":
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        return nn.Sequential(
            nn.Linear(24, 64), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(512, 10)
        )
    return Lstm()


def train(name: str, device: str, dtype: torch.dtype) -> list[float]:
    """Return the losses of three steps."""
    torch.manual_seed(0)
    shape = (8, 3, 8, 8) if name in ("mlp", "cnn") else (8, 8, 24)
    inputs, labels = torch.randn(shape), torch.randint(0, 10, (8,))
    net = model(name).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses = []
    for _ in range(3):
        with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
            logits = net(inputs.to(device))
        loss = F.cross_entropy(logits.float(), labels.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


wanted = sys.argv[1]
for kind, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
    if wanted == "lstm" and kind != torch.float32:
        continue  # the CPU has no such LSTM to compare with
    gpu, cpu = train(wanted, "cuda", kind), train(wanted, "cpu", kind)
    if max(abs(a - b) for a, b in zip(gpu, cpu, strict=True)) > tolerance:
        sys.exit(f"{wanted} in {kind}: {gpu} on the soft GPU, {cpu} on the CPU")
