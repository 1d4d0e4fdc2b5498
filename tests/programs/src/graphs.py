"""A whole step as a CUDA graph, and layers made into graphs."""

from __future__ import annotations

import signature
import torch
from small_gpt import GPT, WIDTH, Block, batch

STEPS = 4


def whole_step() -> None:
    """Capture forward, backward and optimizer; launch that."""
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    words, targets = batch(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            model(words, targets)[1].backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(words, targets)[1]
        loss.backward()
        optimizer.step()
    for step in range(STEPS):
        for place, new in zip((words, targets), batch(step), strict=True):
            place.copy_(new)
        graph.replay()
        signature.loss(loss)
    signature.state(model, optimizer)


def callables() -> None:
    """Let PyTorch make graphs of a layer's forward and backward."""
    layer = Block().cuda()
    sample = torch.randn(2, 8, WIDTH, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(layer, (sample,))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = graphed(torch.randn(2, 8, WIDTH, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        signature.loss(loss)
    signature.state(layer)


if __name__ == "__main__":
    torch.manual_seed(1)
    whole_step()
    callables()
