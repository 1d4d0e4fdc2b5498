"""The GPT of the examples with a checkpoint at every step: what `bench-recovery` restarts.

Rank 1 ends itself after step --die-at, once; torchrun then starts all processes again, and they go
on from the last checkpoint. Prints the time of the death and of the step after it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from example_support import TextWindows, add_text_arguments, make_parser, print_line
from train_gpt import GPT


def main() -> None:
    """Train from the checkpoint, if there is one."""
    parser = make_parser("checkpoint restart", optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--die-at", type=int, required=True)
    args = parser.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    saved = Path(args.folder) / "checkpoint.pt"
    first_time = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(args.seed)
    model = GPT(args).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    done = 0
    if saved.exists():
        state = torch.load(saved, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    module = nn.parallel.DistributedDataParallel(model, device_ids=[local])
    windows = TextWindows(args, args.block + 1)
    for step in range(1, args.die_at + 2):
        (batch,) = (part.to(device) for part in windows.next())
        if step <= done:
            continue
        optimizer.zero_grad(set_to_none=True)
        logits = module(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if rank == 0:
            loss.item()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step}, saved)
            if step == args.die_at + 1:
                print_line(f"after={time.time()}")
        dist.barrier()
        if first_time and rank == 1 and step == args.die_at:
            print_line(f"died={time.time()}")
            os._exit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
