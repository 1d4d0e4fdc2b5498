"""A trainer as minGPT-ddp has it: DDP, a data loader with workers, a snapshot to resume from.

torchrun --nproc-per-node 2 ddp_trainer.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import signature
import torch
import torch.distributed as dist
from small_gpt import GPT, LENGTH, WORDS
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    """A model, its data, and where it is saved."""

    def __init__(self, snapshot: Path) -> None:
        self.device = int(os.environ["LOCAL_RANK"])
        dice = torch.Generator().manual_seed(3)
        data = list(torch.randint(0, WORDS, (12, LENGTH + 1), generator=dice))
        self.sampler = DistributedSampler(data, seed=5)
        self.loader = DataLoader(
            data, batch_size=2, sampler=self.sampler, num_workers=1, pin_memory=True
        )
        model = GPT().to(self.device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.snapshot, self.epoch = snapshot, 0
        if snapshot.exists():
            saved = torch.load(snapshot, map_location=f"cuda:{self.device}")
            model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.epoch = saved["epoch"] + 1
        self.model = DistributedDataParallel(model, device_ids=[self.device])

    def run(self, epochs: int) -> None:
        """Train up to that epoch."""
        for epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(epoch)
            for words in self.loader:
                words = words.to(self.device, non_blocking=True)
                loss = self.model(words[:, :-1].contiguous(), words[:, 1:].contiguous())[1]
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                signature.loss(loss.detach())
            if dist.get_rank() == 0:
                saved = {"model": self.model.module, "optimizer": self.optimizer}
                parts = {name: one.state_dict() for name, one in saved.items()}
                torch.save(parts | {"epoch": epoch}, self.snapshot)
            dist.barrier()


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    snapshot = Path(folder[0]) / "snapshot.pt"
    Trainer(snapshot).run(1)
    resumed = Trainer(snapshot)
    resumed.run(2)
    signature.state(resumed.model, resumed.optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
