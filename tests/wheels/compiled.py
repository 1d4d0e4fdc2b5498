"""What a wheel brings besides kernels: Triton, graphs, solvers, transforms. Prints what they give."""

from __future__ import annotations

import hashlib

import torch

STEPS = 5


def replay_a_graph() -> None:
    graph, y = torch.cuda.CUDAGraph(), torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y.mul_(3)
    graph.replay()
    assert y.sum().item() == 24.0


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
    compiled = torch.compile(model.cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(32, 64, device="cuda")
    wanted = torch.randint(0, 10, (32,), device="cuda")
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(compiled(x), wanted)
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item()}", flush=True)
    replay_a_graph()
    assert torch.linalg.inv(torch.eye(4, device="cuda") * 2).sum().item() == 2.0
    assert torch.fft.fft(torch.ones(8, device="cuda")).abs().sum().item() == 8.0
    data = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print(f"rank=0 params_sha256={hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
