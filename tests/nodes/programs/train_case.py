"""A training of one --case on several hosts, which may lose one of them: see `CASES`.

    train_case.py --case NAME --steps N [--store FILE] [--pause S] [--linger FILE]

The options are those of train.py. Most cases are those of the tests on one host.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "e2e" / "programs"), str(ROOT / "examples")]

import parallel_cases  # noqa: E402
import recovery_cases  # noqa: E402
from recovery_cases import RANK, WORLD, Step, mlp, sha256, spread_out  # noqa: E402
from train import pause, say  # noqa: E402
from train_gpt import GPT, loss_of  # noqa: E402

ROWS, WORKERS = 8, 2
GPT_SIZES = SimpleNamespace(channels=32, heads=2, layers=2, block=16, dropout=0.1)


def gpt(models: list[nn.Module]) -> Step:
    """The example's model with dropout; which text a rank reads is drawn by Python's generator."""
    model = GPT(GPT_SIZES).cuda()
    models.append(model)
    module, optimizer = spread_out(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.arange(4096).square() % model.tokens.num_embeddings
    random.seed(RANK)

    def step(number: int) -> Tensor:
        starts = [random.randrange(4000) for _ in range(ROWS)]  # noqa: S311
        rows = torch.stack([text[at : at + GPT_SIZES.block + 1] for at in starts]).cuda()
        loss = loss_of(module, (rows,))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Noisy(Dataset[Tensor]):
    """Samples with noise of the generator of the worker that loads them."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((16,), index / 4096) + 0.1 * torch.randn(16)


def loader(models: list[nn.Module]) -> Step:
    """A data loader with workers, which are ahead of the training, and shuffle and add noise."""
    model = mlp(dropout=0.1)
    models.append(model)
    module, optimizer = spread_out(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    order = torch.Generator().manual_seed(RANK)
    batches = iter(
        DataLoader(
            Noisy(), ROWS, shuffle=True, num_workers=WORKERS, generator=order, pin_memory=True
        )
    )

    def step(number: int) -> Tensor:
        loss = module(next(batches).cuda(non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


CASES: dict[str, Callable[[list[nn.Module]], Step]] = {
    **recovery_cases.CASES,
    **parallel_cases.CASES,
    "gpt": gpt,
    "loader": loader,
    # Where ranks leave out other steps there is no image of them.
    "pipelines": partial(parallel_cases.dp_pp, overflows=False),
}


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--store")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--slow", default="")
    parser.add_argument("--linger", default="")
    return parser.parse_args()


def main() -> None:
    """Train."""
    args = parse()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if WORLD > 1:
        how = {"init_method": f"file://{args.store}"} if args.store else {}
        dist.init_process_group("nccl", rank=RANK, world_size=WORLD, **how)
    torch.manual_seed(7)
    models: list[nn.Module] = []
    step = CASES[args.case](models)
    torch.manual_seed(70 + RANK)
    for number in range(args.steps):
        say(f"rank={RANK} step={number} loss={step(number).item()!r}")
        time.sleep(pause(args, number))
    say(f"rank={RANK} sha256={sha256(models)}")
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
