"""Train a small character-level GPT on the source text of the Python standard library.

Plain PyTorch: runs on the CPU, on one GPU, or under torchrun with one process per GPU. Everything
random comes from --seed, so two runs on the same kind of device print the same numbers.

    python examples/train_gpt.py --steps 20
    torchrun --nproc-per-node 2 examples/train_gpt.py
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import string
import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

# A fixed alphabet, so that the model does not change with the Python version.
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


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--optimizer", choices=["adamw", "adamw-fused", "sgd"], default="adamw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--block", type=int, default=64, help="characters per sample")
    parser.add_argument("--batch", type=int, default=8, help="samples per process and step")
    parser.add_argument("--text-bytes", type=int, default=1_000_000, help="training text used")
    return parser.parse_args()


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


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, channels = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, channels // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(channels, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, channels))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attention = Attention(channels, heads, dropout)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(ALPHABET), args.channels)
        self.positions = nn.Embedding(args.block, args.channels)
        self.dropout = nn.Dropout(args.dropout)
        self.blocks = nn.Sequential(
            *(Block(args.channels, args.heads, args.dropout) for _ in range(args.layers))
        )
        self.norm = nn.LayerNorm(args.channels)
        self.head = nn.Linear(args.channels, len(ALPHABET), bias=False)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, indexes: Tensor) -> Tensor:
        positions = torch.arange(indexes.shape[1], device=indexes.device)
        x = self.dropout(self.tokens(indexes) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def make_optimizer(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    fused = True if args.optimizer == "adamw-fused" else None
    return torch.optim.AdamW(model.parameters(), lr=args.lr, fused=fused)


class Batches:
    """Random windows of the text. All processes draw the same starts; each keeps its share."""

    def __init__(self, args: argparse.Namespace, rank: int, world: int) -> None:
        self.text = load_text(args.text_bytes)
        self.block, self.batch, self.rank, self.world = args.block, args.batch, rank, world
        self.generator = torch.Generator().manual_seed(args.seed)

    def next(self, device: torch.device) -> tuple[Tensor, Tensor]:
        high = len(self.text) - self.block - 1
        starts = torch.randint(high, (self.world * self.batch,), generator=self.generator)
        mine = starts[self.rank * self.batch : (self.rank + 1) * self.batch].tolist()
        rows = torch.stack([self.text[start : start + self.block + 1] for start in mine]).long()
        rows = rows.to(device)
        return rows[:, :-1], rows[:, 1:]


def parameters_sha256(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for _, parameter in sorted(model.named_parameters()):
        raw = parameter.detach().cpu().reshape(-1).view(torch.uint8)
        digest.update(bytes(raw.tolist()))  # works without numpy
    return digest.hexdigest()


def set_up_device(world: int) -> torch.device:
    has_cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if has_cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if has_cuda else "gloo")
    return device


def train(args: argparse.Namespace, rank: int, world: int) -> None:
    device = set_up_device(world)
    torch.manual_seed(args.seed)
    model = GPT(args).to(device)
    torch.manual_seed(args.seed + rank)  # each rank its own dropout masks
    module: nn.Module = model
    if world > 1:
        ids = [device.index] if device.type == "cuda" else None
        module = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    optimizer = make_optimizer(args, model)
    batches = Batches(args, rank, world)
    dtype = DTYPES[args.dtype]
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    for step in range(1, args.steps + 1):
        inputs, targets = batches.next(device)
        mixed = torch.autocast(device.type, dtype) if dtype != torch.float32 else None
        with mixed or contextlib.nullcontext():
            logits = module(inputs)
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if rank == 0:
            print(f"step={step} loss={loss.item()!r}", flush=True)
    print(f"rank={rank} params_sha256={parameters_sha256(model)}", flush=True)


def main() -> None:
    args = parse_arguments()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    train(args, int(os.environ.get("RANK", "0")), world)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
