"""Small trainings that are hard to repeat, one per --case: what they print must not depend on faults.

Runs on one GPU, or under torchrun on several.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
Step = Callable[[int], Tensor]


def data(step: int, features: int = 16, rows: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + RANK)
    return torch.randn(rows, features, generator=generator)


def mlp(width: int = 32, dropout: float = 0.0) -> nn.Module:
    layers = [nn.Linear(16, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 4)]
    return nn.Sequential(*layers).cuda()


def spread_out(model: nn.Module, **options: object) -> nn.Module:
    """Wrap the model when there are several ranks."""
    if WORLD == 1:
        return model
    device = torch.cuda.current_device()
    # None: the group of all, which --split divides.
    group = dist.new_group(list(range(WORLD))) if dist.group.WORLD.bound_device_id else None
    return nn.parallel.DistributedDataParallel(
        model, device_ids=[device], process_group=group, **options
    )


def plain_loss(module: nn.Module, step: int) -> Tensor:
    return module(data(step).cuda()).square().mean()


def accumulate(models: list[nn.Module]) -> Step:
    """Gradients of three batches, reduced at the last."""
    model = mlp()
    models.append(model)
    module, optimizer = spread_out(model), torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        total = torch.zeros((), device="cuda")
        for part in range(3):
            hold = WORLD > 1 and part < 2
            with module.no_sync() if hold else torch.enable_grad():
                loss = plain_loss(module, 10 * number + part) / 3
                loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def scaler(models: list[nn.Module]) -> Step:
    """Half precision; the second step overflows and is skipped."""
    model = mlp(dropout=0.2)
    models.append(model)
    module, optimizer = (
        spread_out(model),
        torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9),
    )
    grad_scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)

    def step(number: int) -> Tensor:
        with torch.autocast("cuda", torch.float16):
            loss = plain_loss(module, number)
        grad_scaler.scale(loss * (1e6 if number == 2 else 1.0)).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    return step


def ema(models: list[nn.Module]) -> Step:
    """Convolutions with BatchNorm, an average of the weights after each step, gradients in buckets."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
    ).cuda()
    average = copy.deepcopy(net)
    models += [net, average]
    module = spread_out(net, gradient_as_bucket_view=True, broadcast_buffers=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        loss = module(data(number).cuda().view(8, 1, 4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters(), strict=True):
                a.mul_(0.9).add_(p, alpha=0.1)
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    return step


def shampoo(models: list[nn.Module]) -> Step:
    """Gradients between inverse roots of their second moments, by eigh, and of K-FAC by Cholesky."""
    model = mlp()
    models.append(model)
    module = spread_out(model)
    weights = [p for p in model.parameters() if p.dim() == 2]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moments = [[torch.eye(n, device="cuda") for n in p.shape] for p in weights]

    def root(moment: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(moment)
        return vectors * values.clamp_min(1e-6).pow(-0.25) @ vectors.mT

    def step(number: int) -> Tensor:
        loss = plain_loss(module, number)
        loss.backward()
        with torch.no_grad():
            for p, (left, right) in zip(weights, moments, strict=True):
                left.addmm_(p.grad, p.grad.mT)
                right.addmm_(p.grad.mT, p.grad)
                if number % 2:
                    p.grad = root(left) @ p.grad @ root(right)
                else:
                    half = torch.cholesky_solve(p.grad, torch.linalg.cholesky(left))
                    p.grad = torch.linalg.solve(right, half, left=False)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def two_optimizers(models: list[nn.Module]) -> Step:
    """A generator and its critic."""
    maker, critic = mlp(), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
    models += [maker, critic]
    first = torch.optim.Adam(maker.parameters(), lr=1e-2)
    second = torch.optim.RMSprop(critic.parameters(), lr=1e-2)
    wide_maker, wide_critic = spread_out(maker), spread_out(critic)

    def step(number: int) -> Tensor:
        made = wide_maker(data(number).cuda())
        judged = wide_critic(made.detach()).mean()
        second.zero_grad()
        judged.backward()
        second.step()
        loss = (made.square().mean() - wide_critic(made).mean()).exp().log1p()
        first.zero_grad()
        loss.backward()
        first.step()
        return loss.detach() + judged.detach()

    return step


def lbfgs(models: list[nn.Module]) -> Step:
    """Several evaluations within one step, each with host decisions."""
    model = mlp(8)
    models.append(model)
    module, optimizer = spread_out(model), torch.optim.LBFGS(model.parameters(), max_iter=4)

    def step(number: int) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = plain_loss(module, number)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return step


def in_backward(models: list[nn.Module]) -> Step:
    """An optimizer per parameter, stepping during backward; with several ranks as a bucket is there."""
    model = mlp()
    models.append(model)
    module = spread_out(model)
    if WORLD > 1:
        module._register_fused_optim(torch.optim.SGD, lr=1e-2, momentum=0.9)
    for parameter in model.parameters() if WORLD == 1 else ():
        own = torch.optim.SGD([parameter], lr=1e-2, momentum=0.9)

        def apply(_: Tensor, own: torch.optim.Optimizer = own) -> None:
            own.step()
            own.zero_grad()

        parameter.register_post_accumulate_grad_hook(apply)

    def step(number: int) -> Tensor:
        loss = plain_loss(module, number)
        loss.backward()
        if WORLD > 1:
            model.zero_grad()
        return loss.detach()

    return step


def offload(models: list[nn.Module]) -> Step:
    """Activations to pinned memory and back on a side stream, through two buffers, without a wait."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    buffers = [torch.empty(8, 32, pin_memory=True) for _ in range(2)]
    side = torch.cuda.Stream()

    def step(number: int) -> Tensor:
        x = data(number).cuda()
        for part in range(4):
            hidden = model[:2](x)
            buffer = buffers[part % 2]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                buffer.copy_(hidden.detach(), non_blocking=True)
                back = buffer.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            loss = (hidden - 0.5 * back).square().mean() + model(x).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def evaluation(models: list[nn.Module]) -> Step:
    """No optimizer at all, so no cut but those that the log asks for; running statistics change."""
    net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)).cuda()
    models.append(net)

    def step(number: int) -> Tensor:
        with torch.no_grad():
            return sum(net(data(20 * number + i).cuda()).square().mean() for i in range(5))

    return step


def graph(models: list[nn.Module]) -> Step:
    """A captured training step, launched with changed input."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.zeros(8, 16, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            model(x).square().mean().backward()
            optimizer.zero_grad(set_to_none=False)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = model(x).square().mean()
        loss.backward()

    def step(number: int) -> Tensor:
        x.copy_(data(number))
        optimizer.zero_grad(set_to_none=False)
        captured.replay()
        optimizer.step()
        return loss.detach().clone()

    return step


def record_stream(models: list[nn.Module]) -> Step:
    """Blocks that another stream used are given out again as soon as an event query succeeds."""
    model = mlp(64)
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    side = torch.cuda.Stream()

    def step(number: int) -> Tensor:
        x, found = data(number).cuda(), torch.zeros((), device="cuda")
        for _ in range(6):
            hidden = model(x)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                found += hidden.detach().abs().sum()
            hidden.record_stream(side)
            hidden.square().mean().backward()
            del hidden
            x = x + 0.1
        torch.cuda.current_stream().wait_stream(side)
        optimizer.step()
        optimizer.zero_grad()
        return found

    return step


def post_local(models: list[nn.Module]) -> Step:
    """Replicated for two steps, then each rank on its own with an average every second step."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def average(tensors: Iterable[Tensor | None]) -> None:
        for tensor in tensors:
            if WORLD > 1 and tensor is not None:
                dist.all_reduce(tensor)
                tensor.div_(WORLD)

    def step(number: int) -> Tensor:
        loss = plain_loss(model, number)
        loss.backward()
        if number <= 2:
            average(p.grad for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        if number > 2 and number % 2 == 0:
            average(p.data for p in model.parameters())
        return loss.detach()

    return step


def drift(models: list[nn.Module]) -> Step:
    """Replicated for three steps, then each rank goes its own way; the loss is always averaged."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step(number: int) -> Tensor:
        loss = plain_loss(model, number)
        loss.backward()
        shared = [p.grad for p in model.parameters()] if number <= 3 else []
        for tensor in (*shared, loss.detach()) if WORLD > 1 else ():
            dist.all_reduce(tensor)
            tensor.div_(WORLD)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def collectives(models: list[nn.Module]) -> Step:
    """All kinds of collectives between two steps, some of them not waited for."""
    model = mlp()
    models.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step(number: int) -> Tensor:
        loss = plain_loss(model, number)
        loss.backward()
        mine = torch.cat([p.grad.flatten() for p in model.parameters()])
        mine = mine[: len(mine) // WORLD * WORLD]
        share = torch.empty(len(mine) // WORLD, device="cuda")
        if WORLD > 1:
            dist.reduce_scatter_tensor(share, mine)
            whole = torch.empty_like(mine)
            work = dist.all_gather_into_tensor(whole, share, async_op=True)
            peer = torch.empty_like(share)
            other = (RANK + 1) % WORLD
            ops = [
                dist.P2POp(dist.isend, share, other),
                dist.P2POp(dist.irecv, peer, RANK - 1 if RANK else WORLD - 1),
            ]
            for request in dist.batch_isend_irecv(ops):
                request.wait()
            mixed = torch.empty_like(mine)
            dist.all_to_all_single(mixed, mine)
            dist.broadcast(peer, src=number % WORLD)
            work.wait()
            loss = loss + 1e-3 * (whole.sum() + peer.sum() + mixed.sum())
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def sound(models: list[nn.Module]) -> Step:
    """Spectra of sound, a mask for them, sound again: cuFFT's plans live as long as the program."""
    mask = nn.Sequential(nn.Linear(33, 16), nn.ReLU(), nn.Linear(16, 33), nn.Sigmoid()).cuda()
    models.append(mask)
    module, optimizer = spread_out(mask), torch.optim.Adam(mask.parameters(), lr=1e-2)
    window = torch.hann_window(64, device="cuda")

    def step(number: int) -> Tensor:
        noisy = data(number, 500, rows=2).cuda()
        spectrum = torch.stft(noisy, 64, 16, window=window, return_complex=True).transpose(1, 2)
        masked = (spectrum * module(spectrum.abs())).transpose(1, 2)
        clean = torch.istft(masked, 64, 16, window=window, length=500)
        # Another plan in each step.
        loss = clean.square().mean() + torch.fft.rfft(clean, n=501 + number).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


CASES: dict[str, Callable[[list[nn.Module]], Step]] = {
    case.__name__: case
    for case in (
        accumulate, scaler, ema, shampoo, two_optimizers, lbfgs, in_backward, offload, evaluation, graph,
        record_stream, post_local, drift, collectives, sound,
    )
}  # fmt: skip


def sha256(models: list[nn.Module]) -> str:
    """Return a hash of all parameters and buffers that this rank has."""
    digest = hashlib.sha256()
    for model in models:
        for tensor in model.state_dict().values():
            tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            digest.update(bytes(tensor.detach().cpu().reshape(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()


def main(cases: dict[str, Callable[[list[nn.Module]], Step]]) -> None:
    """Train the case that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=cases, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--split", action="store_true", help="communicators of groups: by division")
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if WORLD > 1:
        dist.init_process_group("nccl", device_id=device if args.split else None)
    torch.manual_seed(7)
    models: list[nn.Module] = []
    step = cases[args.case](models)
    torch.manual_seed(70 + RANK)
    for number in range(1, args.steps + 1):
        print(f"rank={RANK} step={number} loss={step(number).item()!r}\n", end="", flush=True)
    print(f"rank={RANK} params_sha256={sha256(models)}\n", end="", flush=True)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(CASES)
