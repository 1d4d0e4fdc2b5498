"""What `pyft demo` trains: a small network on numbers that every machine has. Plain PyTorch."""

import ctypes
import hashlib
import sys

import torch
from torch import nn


def main() -> None:
    """Train for so many steps; print each loss, and a hash of the parameters at the end."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = torch.randn(4096, 32)
    y = torch.sin(x.sum(1, keepdim=True))
    x, y = x.cuda(), y.cuda()
    model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, int(sys.argv[1]) + 1):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step={step} loss={loss.item()!r}", flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        value = parameter.detach().cpu()  # read without numpy, which PyTorch does not install
        digest.update(ctypes.string_at(value.data_ptr(), value.nbytes))
    print(f"parameters={digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
