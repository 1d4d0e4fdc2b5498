"""Operators that PyTorch compiles when they are first called: off by more than 1e-5 from the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

given = torch.linspace(0.1, 0.9, 24)
wrong: list[str] = []


def compare(name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Remember the name if value or gradient differ between the devices."""
    on = {}
    for device in ("cpu", "cuda"):
        x = given.clone().to(device).requires_grad_()
        result = function(x)
        if result.requires_grad:
            result.abs().sum().backward()  # compiles in a thread of autograd
        on[device] = (result.detach().cpu(), x.grad.cpu() if x.grad is not None else given)
    for cpu, gpu in zip(on["cpu"], on["cuda"], strict=True):
        if not torch.allclose(cpu, gpu, rtol=1e-5, atol=1e-5):
            wrong.append(name)


def compare_all() -> None:
    """Every kind of kernel that is made of jitted code."""
    compare("erfinv", torch.erfinv)
    compare("i0", torch.special.i0)
    compare("zeta", lambda x: torch.special.zeta(x.detach() + 2, x.detach()))
    compare("prod", lambda x: x.reshape(6, 4).prod(1))
    compare("gcd", lambda x: torch.gcd((x * 100).long(), (x * 300).long()).float())
    compare("complex sigmoid", lambda x: torch.sigmoid(torch.complex(x.detach(), x.detach())).abs())


thread = threading.Thread(target=compare_all)
thread.start()
thread.join()
print("wrong", wrong)
