"""Print as JSON what a training step takes: name of the model -> seconds of each step.

step_times.py NAME:LAYERS:CHANNELS:BLOCK:BATCH:STEPS ...
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from example_support import TextWindows, add_text_arguments, make_optimizer, make_parser
from train_gpt import GPT, loss_of

WARM_UP = 5


def step_times(args: argparse.Namespace) -> list[float]:
    """Train as the examples do; a step ends when its loss is there."""
    torch.manual_seed(args.seed)
    model = GPT(args).to("cuda")
    optimizer = make_optimizer(args, model)
    batches = TextWindows(args, args.block + 1)
    times = []
    for _ in range(WARM_UP + args.steps):
        began = time.perf_counter()
        batch = tuple(part.to("cuda") for part in batches.next())
        loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - began)
    return times[WARM_UP:]


def main() -> None:
    parser = make_parser("step times", optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    result = {}
    for text in sys.argv[1:]:
        name, *numbers = text.split(":")
        layers, channels, block, batch, steps = numbers
        words = ["--layers", layers, "--channels", channels, "--block", block]
        words += ["--heads", str(max(1, int(channels) // 64)), "--batch", batch, "--steps", steps]
        result[name] = step_times(parser.parse_args(words))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
