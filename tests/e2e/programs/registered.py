"""Host memory the program registers itself: prints what is said about it, and copies through it."""

from __future__ import annotations

import torch

cudart = torch.cuda.cudart()
torch.zeros(1, device="cuda")


def register(tensor: torch.Tensor, first: int = 0) -> int:
    """Return the code for registering the tensor's bytes from `first` on."""
    address = tensor.data_ptr() + first
    return int(cudart.cudaHostRegister(address, tensor.nbytes - first, 0))


def main() -> None:
    source = torch.randn(3_000_001)
    result = torch.empty_like(source)
    print("before", source.is_pinned())
    print("register", register(source), register(result), source.is_pinned())
    print("inside", source[1234:].is_pinned(), torch.empty(1 << 20).is_pinned())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        result.copy_(source.to("cuda", non_blocking=True) * 2, non_blocking=True)
    stream.synchronize()
    print("copied", torch.equal(result, source * 2))
    # Wrong calls come last: PyTorch would find their error at its next kernel.
    print("again", register(source), register(source, first=4096))
    print("middle", int(cudart.cudaHostUnregister(source.data_ptr() + 4096)))
    for tensor in (source, result):
        print("unregister", int(cudart.cudaHostUnregister(tensor.data_ptr())), tensor.is_pinned())
    print("twice", int(cudart.cudaHostUnregister(source.data_ptr())))
    print("afterwards", register(source), int(cudart.cudaHostUnregister(source.data_ptr())))


main()
