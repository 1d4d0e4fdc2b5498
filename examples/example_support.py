"""What the examples share: arguments, the text they learn, the training loop, the printed numbers."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import string
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

# A fixed alphabet, so that the models do not change with the Python version.
ALPHABET = "".join(sorted(string.digits + string.ascii_letters + string.punctuation + " \n"))
UNKNOWN = ALPHABET.index("?")
DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,  # autocast with GradScaler
    "bf16": torch.bfloat16,  # autocast
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class Batches(Protocol):
    """Where a training loop takes its samples from."""

    def next(self) -> tuple[Tensor, ...]:
        """Return this process's share of the next batch, on the CPU."""


def make_parser(description: str, optimizer: str, lr: float) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all examples take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--optimizer", choices=["adamw", "adamw-fused", "sgd"], default=optimizer)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--batch", type=int, default=8, help="samples per process and step")
    parser.add_argument(
        "--parallel",
        choices=["ddp", "fsdp"],
        default="ddp",
        help="with several processes: whole copies of the model, or each process a share of it",
    )
    return parser


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the examples that learn text."""
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--block", type=int, default=64, help="characters per sample")
    parser.add_argument("--text-bytes", type=int, default=1_000_000, help="training text used")


def rank_and_world() -> tuple[int, int]:
    """Return this process's number and the number of processes, as torchrun tells."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def load_text(limit: int) -> Tensor:
    """Return the standard library's sources, in order of name, as character indexes."""
    table = bytearray([UNKNOWN]) * 256
    for index, character in enumerate(ALPHABET):
        table[ord(character)] = index
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit].translate(bytes(table)), dtype=torch.uint8)


class TextWindows:
    """Random windows of the text. All processes draw the same starts; each keeps its share."""

    def __init__(self, args: argparse.Namespace, length: int) -> None:
        self.text = load_text(args.text_bytes)
        self.length, self.batch = length, args.batch
        self.rank, self.world = rank_and_world()
        self.generator = torch.Generator().manual_seed(args.seed)

    def mine(self, drawn: Tensor) -> Tensor:
        """Return this process's rows of what was drawn for all of them."""
        return drawn[self.rank * self.batch : (self.rank + 1) * self.batch]

    def next(self) -> tuple[Tensor, ...]:
        """Return the next windows as one tensor of samples and characters."""
        high = len(self.text) - self.length
        starts = torch.randint(high, (self.world * self.batch,), generator=self.generator)
        windows = [self.text[start : start + self.length] for start in self.mine(starts).tolist()]
        return (torch.stack(windows).long(),)


def make_optimizer(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    fused = True if args.optimizer == "adamw-fused" else None
    return torch.optim.AdamW(model.parameters(), lr=args.lr, fused=fused)


def parameters_sha256(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for _, parameter in sorted(model.named_parameters()):
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        raw = whole.detach().cpu().reshape(-1).view(torch.uint8)
        digest.update(bytes(raw.tolist()))  # works without numpy
    return digest.hexdigest()


def print_line(line: str) -> None:
    """Print in one write: the lines of several processes on one pipe do not mix."""
    print(f"{line}\n", end="", flush=True)


def set_up_device(world: int) -> torch.device:
    has_cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if has_cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if has_cuda else "gloo")
    return device


def parallelize(
    args: argparse.Namespace, model: nn.Module, device: torch.device, world: int
) -> nn.Module:
    """Return what the training loop calls: the model, or the model over all processes."""
    if world == 1:
        return model
    if args.parallel == "fsdp":
        from torch.distributed.fsdp import fully_shard  # imports much, for this case only

        for part in model.children():
            for block in part if isinstance(part, (nn.Sequential, nn.ModuleList)) else ():
                fully_shard(block)
        fully_shard(model)
        return model
    ids = [device.index] if device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(model, device_ids=ids)


def train(
    args: argparse.Namespace,
    make_model: Callable[[argparse.Namespace], nn.Module],
    batches: Batches,
    loss_of: Callable[[nn.Module, tuple[Tensor, ...]], Tensor],
) -> None:
    """Train for --steps steps; print each loss, and at the end a hash of all parameters."""
    rank, world = rank_and_world()
    device = set_up_device(world)
    torch.manual_seed(args.seed)
    model = make_model(args).to(device)
    torch.manual_seed(args.seed + rank)  # each rank its own dropout masks
    module = parallelize(args, model, device, world)
    optimizer = make_optimizer(args, model)
    dtype = DTYPES[args.dtype]
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    for step in range(1, args.steps + 1):
        batch = tuple(part.to(device) for part in batches.next())
        mixed = torch.autocast(device.type, dtype) if dtype != torch.float32 else None
        with mixed or contextlib.nullcontext():
            loss = loss_of(module, batch)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if rank == 0:
            print_line(f"step={step} loss={loss.item()!r}")
    print_line(f"rank={rank} params_sha256={parameters_sha256(model)}")
    if dist.is_initialized():
        dist.destroy_process_group()
