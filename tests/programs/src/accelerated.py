"""accelerate: half precision, accumulation, clipping, a saved state.

accelerate launch --num_processes 2 … accelerated.py
"""

from __future__ import annotations

import tempfile

import accelerate
import signature
import torch
from accelerate.utils import broadcast_object_list
from small_gpt import GPT, LENGTH, WORDS
from torch.utils.data import DataLoader

STEPS = 8  # two of them make one of the optimizer


def data() -> list[torch.Tensor]:
    """Return words that a seed gives."""
    dice = torch.Generator().manual_seed(3)
    return list(torch.randint(0, WORDS, (STEPS * 4, LENGTH + 1), generator=dice))


def main() -> None:
    accelerate.utils.set_seed(1)
    helper = accelerate.Accelerator(gradient_accumulation_steps=2)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = helper.prepare(model, optimizer, DataLoader(data(), batch_size=2))
    folder = broadcast_object_list([tempfile.mkdtemp()])[0]
    for number, words in enumerate(loader):
        with helper.accumulate(model):
            loss = model(words[:, :-1].contiguous(), words[:, 1:].contiguous())[1]
            helper.backward(loss)
            if helper.sync_gradients:
                helper.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            signature.loss(loss.detach())
        if number == STEPS // 2:
            helper.save_state(folder)
    signature.state(model, optimizer)
    helper.load_state(folder)
    signature.state(model)
    helper.end_training()


if __name__ == "__main__":
    main()
