"""Lightning's Trainer, which starts the second rank itself.

python lightning_gpt.py ddp|fsdp
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import lightning
import signature
import torch
from small_gpt import GPT, LENGTH, WORDS, Block
from torch.utils.data import DataLoader

STEPS = 4


class Module(lightning.LightningModule):
    """A GPT as Lightning wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = GPT()

    def training_step(self, words: torch.Tensor, _: int) -> torch.Tensor:
        loss = self.model(words[:, :-1].contiguous(), words[:, 1:].contiguous())[1]
        signature.loss(loss.detach())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_end(self) -> None:
        signature.state(list(self.parameters()), self.optimizers().optimizer)


def strategy(name: str) -> Any:
    """Return how ranks share the model."""
    if name == "fsdp":
        return lightning.pytorch.strategies.FSDPStrategy(auto_wrap_policy={Block})
    return name


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(1)
    dice = torch.Generator().manual_seed(3)
    data = list(torch.randint(0, WORDS, (STEPS * 4, LENGTH + 1), generator=dice))
    trainer = lightning.Trainer(
        devices=2,
        accelerator="gpu",
        strategy=strategy(sys.argv[1]),
        precision="32-true" if sys.argv[1] == "ddp" else "bf16-mixed",
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(data, batch_size=2))


if __name__ == "__main__":
    main()
