"""A CUDA graph that is replayed between steps of an optimizer: a fault in between must not show."""

from __future__ import annotations

import torch

STEPS = 6


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(64, 64, device="cuda") * 0.1
    scale = torch.nn.Parameter(torch.randn(64, device="cuda") * 0.1)
    optimizer = torch.optim.SGD([scale], lr=1e-4, momentum=0.9)
    x = torch.zeros(8, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    torch.relu(x @ weight)
    with torch.cuda.graph(graph):
        left = torch.relu(x @ weight) + 1
        side.wait_stream(torch.cuda.current_stream())  # with events that end in the capture
        with torch.cuda.stream(side):
            right = left * 2
        torch.cuda.current_stream().wait_stream(side)
        both = (left + right).sum(0)
    for step in range(STEPS):
        x.copy_(torch.randn(8, 64))
        graph.replay()
        optimizer.zero_grad()
        loss = ((scale * both).sum() - 1) ** 2
        loss.backward()
        optimizer.step()
        print(f"step={step + 1} loss={loss.item()!r}", flush=True)
    print(scale.double().sum().item())


if __name__ == "__main__":
    main()
