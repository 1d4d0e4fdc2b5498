"""PyTorch's own ways to share a model between ranks.

torchrun --nproc-per-node N parallel.py fsdp2|tp|sequence|fsdp-tp|pipeline|context|checkpoint
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import signature
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from small_gpt import GPT, batch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

STEPS = 4
LONG = 128  # of a sequence that two ranks share in four parts: of 32, as the kernels have it
Batches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer that takes sharded and whole parameters together."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> None:
    """Train some steps."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(*batches(step))[1]
        loss.backward()
        optimizer.step()
        signature.loss(loss.detach())


def shard(model: GPT, **options: Any) -> GPT:
    """Apply FSDP2, a layer at a time."""
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def split(model: GPT, mesh: Any, sequence: bool = False) -> GPT:
    """Apply tensor parallelism; with `sequence` places of a sequence are shared in between."""
    between = Shard(1) if sequence else Replicate()
    into = ColwiseParallel(input_layouts=between)
    out = RowwiseParallel(output_layouts=between)
    plan: dict[str, Any] = {name: into for name in ("wq", "wk", "wv", "up")}
    plan |= {"wo": out, "down": out}
    whole: dict[str, Any] = {}
    if sequence:
        plan |= {"norm_1": SequenceParallel(), "norm_2": SequenceParallel()}
        rows = {"input_layouts": Replicate()}
        whole = {
            "words": RowwiseParallel(**rows, output_layouts=Shard(1)),
            "places": RowwiseParallel(**rows, output_layouts=Shard(0)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    return parallelize_module(model, mesh, whole) if whole else model


def fsdp2() -> None:
    """Shard parameters; compute in bfloat16, add up in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = shard(GPT().cuda(), mp_policy=policy)
    optimizer = optimizer_of(model)
    train(model, optimizer, batch)
    signature.state(model, optimizer)


def tensors(sequence: bool = False) -> None:
    """Split each matrix."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = split(GPT().cuda(), mesh, sequence)
    optimizer = optimizer_of(model)
    train(model, optimizer, lambda step: batch(step, rank=0))
    signature.state(model, optimizer)


def both() -> None:
    """Split within pairs of ranks, shard between the pairs."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))
    model = shard(split(GPT().cuda(), mesh["tensor"]), mesh=mesh["data"])
    optimizer = optimizer_of(model)
    train(model, optimizer, lambda step: batch(step, rank=mesh["data"].get_local_rank()))
    signature.state(model, optimizer)


class First(nn.Module):
    """The first half of a GPT."""

    def __init__(self, whole: GPT) -> None:
        super().__init__()
        self.words, self.places, self.layer = whole.words, whole.places, whole.layers[0]

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(words.shape[1], device=words.device))
        return self.layer(self.words(words) + places)


class Last(nn.Module):
    """The other half."""

    def __init__(self, whole: GPT) -> None:
        super().__init__()
        self.layer, self.norm, self.head = whole.layers[1], whole.norm, whole.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(x)))


def pipeline() -> None:
    """One half a rank, two micro-batches under way at once."""
    rank = dist.get_rank()
    device = torch.device("cuda", torch.cuda.current_device())
    part = (First, Last)[rank](GPT()).to(device)
    stage = PipelineStage(part, rank, 2, device)

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=loss_of)
    optimizer = optimizer_of(part)
    for step in range(STEPS):
        optimizer.zero_grad()
        words, targets = batch(step, size=4, rank=0)
        if rank == 0:
            schedule.step(words)
        else:
            losses: list[torch.Tensor] = []
            schedule.step(target=targets, losses=losses)
            signature.loss(torch.stack(losses).mean().detach())
        optimizer.step()
    signature.state(part, optimizer)


def context() -> None:
    """Share each sequence between ranks, which hand keys and values round in a ring."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = GPT(LONG).cuda()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        words, targets = batch(step, size=1, rank=0, length=LONG)
        places = torch.arange(words.shape[1], device="cuda")
        buffers = [words, targets, places]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0]):
            loss = model(words, targets, places)[1]
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        signature.loss(loss.detach())
    signature.state(model, optimizer)


def checkpoint() -> None:
    """Save a sharded model beside the training, load it, go on."""
    model = shard(GPT().cuda())
    optimizer = optimizer_of(model)
    train(model, optimizer, batch)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    saving = dcp.async_save(parts, checkpoint_id=folder[0])
    train(model, optimizer, lambda step: batch(step + STEPS))
    saving.result()
    signature.state(model, optimizer)
    dcp.load(parts, checkpoint_id=folder[0])
    set_state_dict(
        model,
        optimizer,
        model_state_dict=parts["model"],
        optim_state_dict=parts["optimizer"],
    )
    train(model, optimizer, lambda step: batch(step + STEPS))
    signature.state(model, optimizer)


WAYS: dict[str, Callable[[], None]] = {
    "fsdp2": fsdp2,
    "tp": tensors,
    "sequence": lambda: tensors(sequence=True),
    "fsdp-tp": both,
    "pipeline": pipeline,
    "context": context,
    "checkpoint": checkpoint,
}


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Checkpoints are saved by way of the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if sys.argv[1] == "checkpoint" else "nccl")
    torch.manual_seed(1)
    WAYS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
