"""A GPT trained as nanoGPT does it: autocast, torch.compile, accumulation, clipped gradients."""

from __future__ import annotations

import math

import signature
import torch
from small_gpt import GPT, batch

STEPS, PARTS, WARM = 4, 2, 2


def rate(step: int) -> float:
    """Return the learning rate: it rises, then falls along a cosine."""
    if step < WARM:
        return 1e-3 * (step + 1) / WARM
    return 1e-4 + 9e-4 * 0.5 * (1 + math.cos(math.pi * (step - WARM) / STEPS))


def main() -> None:
    torch.manual_seed(1)
    model = GPT().cuda()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    compiled = torch.compile(model)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        for part in range(PARTS):
            with torch.autocast("cuda", torch.float16):
                loss = compiled(*batch(PARTS * step + part))[1] / PARTS
            scaler.scale(loss).backward()
            signature.loss(loss.detach())
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    signature.state(model, optimizer)


if __name__ == "__main__":
    main()
