"""DeepSpeed with ZeRO-1, ZeRO-2 or ZeRO-3.

torchrun --nproc-per-node 2 zero.py STAGE fp16|bf16
"""

from __future__ import annotations

import os
import sys

import deepspeed
import signature
import torch
from small_gpt import GPT, batch

STEPS = 4


def main() -> None:
    stage, dtype = int(sys.argv[1]), sys.argv[2]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(1)
    model = GPT()
    settings = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        dtype: {"enabled": True},
        "steps_per_print": 1000,
    }
    if dtype == "fp16":
        settings["fp16"]["initial_scale_power"] = 8
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    for step in range(STEPS):
        _, loss = engine(*batch(step))
        engine.backward(loss)
        engine.step()
        signature.loss(loss)
    signature.state([group["params"] for group in optimizer.optimizer.param_groups])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
