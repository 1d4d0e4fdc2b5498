"""A script as others write it: activations kept in pinned memory, checkpointing, recycled pinned
buffers, copies to the host and back on side streams with no wait of the host in between."""

from __future__ import annotations

import hashlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def digest(model: nn.Module) -> str:
    """Return the hash of all parameters and buffers."""
    value = hashlib.sha256()
    for tensor in model.state_dict().values():
        value.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return value.hexdigest()[:16]


def train() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(
        nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64))
        for _ in range(4)
    ).cuda()
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20, growth_interval=2)
    data = torch.randn(6, 64, 64)
    buffers = [torch.empty(64, 64, pin_memory=True) for _ in range(2)]
    copied = [torch.cuda.Event() for _ in range(2)]
    side = torch.cuda.Stream()
    for step in range(6):
        k = step % 2
        copied[k].synchronize()
        buffers[k].copy_(data[step])
        with torch.cuda.stream(side):
            x = buffers[k].to("cuda", non_blocking=True)
            copied[k].record(side)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda", torch.float16):
            with torch.autograd.graph.save_on_cpu(pin_memory=True):
                h = layers[1](layers[0](x)) + x
            h = checkpoint(layers[2], h, use_reentrant=False)
            h = checkpoint(layers[3], h, use_reentrant=True)
            loss = (h - x).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print("loss", loss.item().hex(), scaler.get_scale())
    print(digest(layers))


def chain() -> None:
    """Each copy to the device reads what the copy to the host before it has written."""
    side = torch.cuda.Stream()
    host = torch.empty(1 << 16, pin_memory=True)
    a = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
    for i in range(8):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            host.copy_(a, non_blocking=True)
            b = host.to("cuda", non_blocking=True).mul_(1.5).add_(i)
        torch.cuda.current_stream().wait_stream(side)
        b.record_stream(torch.cuda.current_stream())
        a = b + 1
    parts = [(a[i : i + 100] * i).to("cpu", non_blocking=True) for i in range(50)]
    torch.cuda.synchronize()
    print("chain", a.double().sum().item().hex(), sum(p.double().sum().item() for p in parts).hex())


if __name__ == "__main__":
    train()
    chain()
