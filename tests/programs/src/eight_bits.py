"""bitsandbytes: an optimizer with states of 8 bits, layers of 4 and of 8 bits."""

from __future__ import annotations

import bitsandbytes as bnb
import signature
import torch
from torch import nn

STEPS = 4


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).cuda()
    # Smaller tensors would keep states of 32 bits.
    optimizer = bnb.optim.Adam8bit(model.parameters(), lr=1e-3, min_8bit_size=1024)
    four = bnb.nn.Linear4bit(64, 64, compute_dtype=torch.float16, quant_type="nf4").cuda()
    eight = bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False, threshold=6.0).cuda()
    for step in range(STEPS):
        dice = torch.Generator().manual_seed(step)
        x = torch.randn(16, 64, generator=dice).cuda()
        optimizer.zero_grad()
        frozen = four(x.half()).float() + eight(x.half()).float()
        loss = (model(x) - frozen.detach()).square().mean()
        loss.backward()
        optimizer.step()
        signature.loss(loss.detach())
    signature.state(model, optimizer)


if __name__ == "__main__":
    main()
