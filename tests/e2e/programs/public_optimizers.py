"""Scripts as others write them: two optimizers that take turns, one with a closure, all the rest,
and none at all."""

from __future__ import annotations

import torch
from public_offload import digest
from torch import nn
from torch.func import functional_call, grad, vmap

mse = nn.functional.mse_loss


def adversaries() -> None:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).cuda()
    making = torch.optim.RMSprop(maker.parameters(), lr=1e-3)
    judging = torch.optim.SGD(judge.parameters(), lr=1e-2, momentum=0.9, nesterov=True)
    real, score = torch.randn(32, 16, device="cuda"), nn.BCEWithLogitsLoss()
    yes, no = torch.ones(32, 1, device="cuda"), torch.zeros(32, 1, device="cuda")
    for _ in range(3):
        for _ in range(2):
            made = maker(torch.randn(32, 8, device="cuda"))
            x = real.clone().requires_grad_()
            slope = torch.autograd.grad(judge(x).sum(), x, create_graph=True)[0]
            penalty = slope.pow(2).sum(1).mean()
            loss = score(judge(real), yes) + score(judge(made.detach()), no) + 0.1 * penalty
            judging.zero_grad()
            loss.backward()
            judging.step()
        other = score(judge(maker(torch.randn(32, 8, device="cuda"))), yes)
        making.zero_grad()
        other.backward()
        making.step()
        print("adversaries", loss.item().hex(), other.item().hex())
    print(digest(maker), digest(judge))


def fit() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    x = torch.rand(64, 4, device="cuda")
    y = x.prod(1, keepdim=True).sin()
    newton = torch.optim.LBFGS(net.parameters(), max_iter=6, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        newton.zero_grad()
        loss = mse(net(x), y)
        loss.backward()
        return loss

    print("closure", [newton.step(closure).item().hex() for _ in range(2)])
    for _ in range(2):  # no optimizer at all
        loss = mse(net(x), y)
        steps = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, step in zip(net.parameters(), steps, strict=True):
                parameter -= 0.1 * step
    weights = {name: p.detach() for name, p in net.named_parameters()}
    each = vmap(grad(lambda w, a, b: mse(functional_call(net, w, (a,)), b)), (None, 0, 0))
    print("by hand", loss.item().hex(), each(weights, x, y)["0.weight"].norm().item().hex())
    for kind in ("Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor"):
        optimizer = getattr(torch.optim, kind)(net.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss = mse(net(x), y)
            loss.backward()
            optimizer.step()
        print(kind, loss.item().hex())
    print(digest(net))


if __name__ == "__main__":
    adversaries()
    fit()
